//! What is wrong with one object costs that object and no other, is said with its place, and in order.

use svcmap::source::Loaded;

fn load_text(text: &str) -> Loaded {
    svcmap::source::load_text(text, "test.yaml")
}

fn problems(loaded: &Loaded) -> Vec<String> {
    loaded.problems.iter().map(ToString::to_string).collect()
}

/// What is wrong with the second of three items, in a list of each form; and where.
#[test]
fn one_bad_item_of_a_list_does_not_take_the_others_along() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let long = "9".repeat(1000);
    let (number, twice) = ("number out of range", "is there twice");
    for (faulty, want) in [
        (r#""x": 1e999"#, number),
        (&format!(r#""x": {long}"#), number),
        (&format!(r#""x": {deep}"#), "recursion limit exceeded"),
        (r#""x": "\ud800""#, "unexpected end of hex escape"),
        (r#""kind": "Service", "kind": "Service""#, twice),
        (r#""spec": {"clusterIP": "10.0.0.1", "clusterIP": "10.0.0.2"}"#, twice),
        (r#""metadata": {"name": "b", "annotations": {"a": 1e999}}"#, number),
    ] {
        let good = |name| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"None"}}}}"#
            )
        };
        let bad = format!(r#"{{"kind": "Service", "metadata": {{"name": "b"}}, {faulty}}}"#);
        for text in [
            format!("{{\"items\":[{},\n  {bad},\n{}],\"kind\":\"List\",\"apiVersion\":\"v1\"}}", good("a"), good("c")),
            format!("{}\n  {bad}\n{}", good("a"), good("c")),
            format!(r#"{{"items":[{{"items":[{},{}  {bad}]}},{}]}}"#, good("a"), "\n", good("c")),
        ] {
            let loaded = load_text(&text);
            let names: Vec<_> = loaded.snapshot.services.iter().map(|s| s.key.name.as_str()).collect();
            assert_eq!(names, ["a", "c"], "{text}: {:?}", problems(&loaded));
            assert_eq!((loaded.broken.len(), loaded.problems.len()), (1, 1), "{:?}", problems(&loaded));
            let said = &problems(&loaded)[0];
            assert!(said.starts_with("test.yaml: line 2, column ") && said.contains(want), "{said}");
            assert!(said.contains(": Service default/b: "), "{said}");
        }
    }
}

#[test]
fn one_bad_item_of_a_yaml_list_does_not_take_the_others_along() {
    for (faulty, want) in [
        (
            "metadata: {name: b, annotations: {a: .inf}}",
            "line 8, column 40: Service default/b: value `.inf` is not a finite number",
        ),
        (
            "metadata: {name: b}\n  kind: X",
            "line 9, column 3: X default/b: duplicate mapping key `kind` is not allowed here",
        ),
        ("metadata: {name: b}\n  spec: [", "line 9, column 9: Service default/b: unclosed bracket '['"),
        ("metadata: {namespace: x, name: b}\n  spec: *a", "line 9, column 9: Service x/b: reference to unknown value"),
        ("metadata: {name: [}", "line 8, column 20: items[1]: mismatched bracket"),
    ] {
        let text = format!(
            "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {{name: a}}\n  spec: {{clusterIP: None}}\n\
             - kind: Service\n  {faulty}\n\
             - apiVersion: v1\n  kind: Service\n  metadata: {{name: c}}\n  spec: {{clusterIP: None}}\nkind: List\n"
        );
        let loaded = load_text(&text);
        let names: Vec<_> = loaded.snapshot.services.iter().map(|s| s.key.name.as_str()).collect();
        assert_eq!(names, ["a", "c"], "{text}: {:?}", problems(&loaded));
        let said = problems(&loaded);
        assert!(said.len() == 1 && said[0].starts_with(&format!("test.yaml: {want}")), "{said:?}");
        assert_eq!(loaded.broken.len(), 1);
    }
}

#[test]
fn one_bad_item_of_a_list_in_flow_style_does_not_take_the_others_along() {
    let good =
        |name| format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: None}}}}");
    let bad = "{kind: Service, metadata: {name: b}, x: .inf}";
    let loaded = load_text(&format!("# all\n{{kind: List, items: [\n{}, {bad},\n{}]}}\n", good("a"), good("c")));
    let names: Vec<_> = loaded.snapshot.services.iter().map(|s| s.key.name.as_str()).collect();
    assert_eq!(names, ["a", "c"], "{:?}", problems(&loaded));
    assert_eq!(
        problems(&loaded),
        ["test.yaml: line 3, column 120: Service default/b: value `.inf` is not a finite number"]
    );
    // what is no JSON is not called bad JSON
    assert_eq!(problems(&load_text("{a: .inf}")), ["test.yaml: line 1, column 5: value `.inf` is not a finite number"]);
}

/// What is said of a single object is what is said of an item.
#[test]
fn keys_that_are_there_twice_are_refused_everywhere() {
    for object in [
        r#"{"kind": "Service", "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None"}}"#,
        r#"{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"clusterIP": "None", "clusterIP": "None"}}"#,
    ] {
        for text in [
            object.to_string(),
            format!("{{\"items\": [{object}]}}"),
            format!("items:\n- {object}\n"),
            format!("---\n# x\n{object}"),
        ] {
            let loaded = load_text(&text);
            let said = problems(&loaded);
            assert_eq!((loaded.snapshot.services.len(), said.len()), (0, 1), "{text}: {said:?}");
            assert!(said[0].contains(": Service default/a: ") || text.starts_with("---"), "{text}: {said:?}");
        }
    }
}

/// A cause before what it leads to; and what costs the object even where there is too much else to tell.
#[test]
fn what_is_wrong_with_an_address_comes_before_what_it_costs() {
    let left_out =
        "Service default/web: spec.clusterIP: no address of the Service can be used; the Service is left out";
    for (address, why) in [
        ("10.0.0.300", "\"10.0.0.300\" is not an IP address"),
        ("255.255.255.255", "255.255.255.255 is the broadcast address, which cannot stand here"),
        ("0.0.0.0", "0.0.0.0 is the unspecified address, which cannot stand here"),
        ("'::ffff:0.0.0.0'", "0.0.0.0 is the unspecified address, which cannot stand here"),
        ("224.0.0.1", "224.0.0.1 is a multicast address, which cannot stand here"),
        ("'ff02::1'", "ff02::1 is a multicast address, which cannot stand here"),
        ("127.1.1.1", "127.1.1.1 is a loopback address, which cannot stand here"),
    ] {
        let loaded = load_text(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{clusterIP: {address}}}\n"
        ));
        assert_eq!(loaded.snapshot.services, []);
        assert_eq!(problems(&loaded), [format!("Service default/web: spec.clusterIP: {why}"), left_out.into()]);
    }
    let many = "x, ".repeat(20);
    let all = problems(&load_text(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{clusterIPs: [{many}]}}\n"
    )));
    assert_eq!((all.len(), &all[9]), (11, &left_out.to_string()));
    assert!(all[10].ends_with("11 more problems of this object"), "{all:?}");
}
