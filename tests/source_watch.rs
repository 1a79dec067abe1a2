//! Manifests are followed while files change in all the ways that files change.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use svcmap::source::{Loaded, Watch, watch};

const SOON: Duration = Duration::from_secs(60);
/// Longer than changes are waited for to become quiet.
const LONG: Duration = Duration::from_millis(400);

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a temporary directory"))
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        fs::write(self.at(path), text).expect("writing a manifest");
        self.at(path)
    }
}

fn services(names: &[&str]) -> String {
    let one =
        |name| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: None}}\n---\n");
    names.iter().map(one).collect()
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.snapshot.services.iter().map(|s| s.key.name.as_str()).collect()
}

fn follow(path: impl Into<PathBuf>) -> Watch {
    watch(vec![path.into()]).expect("the path is there")
}

/// The next update, which has to hold these Services.
fn expect(watch: &Watch, want: &[&str], case: &str) -> Loaded {
    let loaded = watch.updates().recv_timeout(SOON).unwrap_or_else(|e| panic!("{case}: no update: {e}"));
    assert_eq!(names(&loaded), want, "{case}: {:?}", loaded.problems);
    loaded
}

fn expect_nothing(watch: &Watch, case: &str) {
    if let Ok(loaded) = watch.updates().recv_timeout(LONG) {
        panic!("{case}: an update that nobody needs: {:?} {:?}", names(&loaded), loaded.problems);
    }
}

#[test]
fn a_file_that_is_written_anew_is_read_anew() {
    let dir = Dir::new();
    let file = dir.write("a.yaml", &services(&["a"]));
    let watch = follow(&file);
    assert_eq!(expect(&watch, &["a"], "beginning").problems, []);
    dir.write("a.yaml", &services(&["a", "b"]));
    expect(&watch, &["a", "b"], "written");
    dir.write("new", &services(&["c"]));
    expect_nothing(&watch, "another file");
    fs::rename(dir.at("new"), &file).unwrap();
    expect(&watch, &["c"], "renamed over");
    File::options().append(true).open(&file).unwrap().write_all(services(&["d"]).as_bytes()).unwrap();
    expect(&watch, &["c", "d"], "appended");
    File::options().write(true).open(&file).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    expect_nothing(&watch, "touched");
}

#[test]
fn a_broken_file_keeps_its_objects_and_the_others_go_on() {
    let dir = Dir::new();
    dir.write("a.yaml", &services(&["a1", "a2"]));
    dir.write("b.yaml", &services(&["b"]));
    let watch = follow(dir.at(""));
    expect(&watch, &["a1", "a2", "b"], "beginning");
    let rest = "of its objects, those that it named before and does not name now stay as they were";
    for (case, text, message) in [
        ("half-written", services(&["a1"]) + "spec: [", rest),
        ("empty", String::new(), "its objects stay as they were before"),
    ] {
        dir.write("a.yaml", &text);
        let loaded = expect(&watch, &["a1", "a2", "b"], case);
        assert_eq!(loaded.broken, [dir.at("a.yaml")], "{case}");
        let told: Vec<_> = loaded.problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(told.last(), Some(&message), "{case}");
    }
    dir.write("b.yaml", &services(&["b", "c"]));
    expect(&watch, &["a1", "a2", "b", "c"], "the other file");
    dir.write("a.yaml", &services(&["a3"]));
    let loaded = expect(&watch, &["a3", "b", "c"], "mended");
    assert_eq!((loaded.broken, loaded.problems), (vec![], vec![]));
}

/// What stands in the place of a file and cannot be read takes nothing away, and is not waited for.
#[test]
fn what_is_no_file_keeps_the_objects_of_the_file_before() {
    let dir = Dir::new();
    let file = dir.write("a.yaml", &services(&["a"]));
    let watch = follow(dir.at(""));
    expect(&watch, &["a"], "beginning");
    fs::write(dir.at("new"), [0, 159, 146, 150, 0]).unwrap();
    fs::rename(dir.at("new"), &file).unwrap();
    expect(&watch, &["a"], "binary");
    symlink("nowhere", dir.at("new")).unwrap();
    fs::rename(dir.at("new"), &file).unwrap();
    assert_eq!(expect(&watch, &["a"], "a link that leads nowhere").broken, std::slice::from_ref(&file));
    assert!(Command::new("mkfifo").arg(dir.at("new")).status().unwrap().success());
    fs::rename(dir.at("new"), &file).unwrap();
    let loaded = expect(&watch, &["a"], "a pipe");
    assert!(loaded.problems[0].to_string().ends_with("a.yaml: this is a pipe, not a file"), "{:?}", loaded.problems);
    fs::remove_file(&file).unwrap();
    expect(&watch, &[], "gone");
}

#[test]
fn files_come_to_a_directory_and_leave_it() {
    let dir = Dir::new();
    let watch = follow(dir.at(""));
    assert_eq!(expect(&watch, &[], "an empty directory").broken, [dir.at("")]);
    dir.write("b.yaml", &services(&["b"]));
    assert_eq!(expect(&watch, &["b"], "one came").broken, [] as [PathBuf; 0]);
    dir.write("a.json", r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"clusterIP":"None"}}"#);
    expect(&watch, &["a", "b"], "another came");
    dir.write("notes.txt", "x");
    dir.write(".b.yaml.swp", "x");
    expect_nothing(&watch, "files that are no manifests");
    fs::rename(dir.at("b.yaml"), dir.at("c.yaml")).unwrap();
    expect(&watch, &["a", "b"], "one has another name");
    fs::remove_file(dir.at("c.yaml")).unwrap();
    expect(&watch, &["a"], "one left");
    fs::remove_file(dir.at("a.json")).unwrap();
    assert_eq!(expect(&watch, &[], "the last one left").broken, [] as [PathBuf; 0]);
}

/// It may be where a volume is mounted later, or was mounted before.
#[test]
fn an_empty_directory_in_the_place_of_another_is_waited_for() {
    let dir = Dir::new();
    fs::create_dir(dir.at("volume")).unwrap();
    let path = dir.at("volume");
    let watch = follow(&path);
    let waiting = expect(&watch, &[], "nothing yet");
    let said = "volume: there is no *.yaml, *.yml or *.json file in this directory; it is waited for";
    assert!(waiting.problems[0].to_string().ends_with(said), "{:?}", waiting.problems);
    // another directory, and not a file in this one
    let replace = |name: &str| {
        fs::create_dir(dir.at("new")).unwrap();
        if !name.is_empty() {
            dir.write(&format!("new/{name}.yaml"), &services(&[name]));
        }
        fs::rename(&path, dir.at("old")).unwrap();
        fs::rename(dir.at("new"), &path).unwrap();
        fs::remove_dir_all(dir.at("old")).unwrap();
    };
    replace("a");
    assert_eq!(expect(&watch, &["a"], "mounted").broken, [] as [PathBuf; 0]);
    replace("");
    let loaded = expect(&watch, &["a"], "an empty one in its place");
    assert_eq!(loaded.broken, [path.clone(), path.join("a.yaml")]);
    fs::remove_dir(&path).unwrap();
    expect(&watch, &["a"], "gone");
    fs::create_dir(&path).unwrap();
    expect(&watch, &["a"], "back, and empty");
    dir.write("volume/b.yaml", &services(&["b"]));
    assert_eq!(expect(&watch, &["b"], "a file").broken, [] as [PathBuf; 0]);
    fs::remove_file(path.join("b.yaml")).unwrap();
    expect(&watch, &[], "the file is removed");
}

/// As the kubelet updates the files of a ConfigMap: all of them at once, by renaming a link.
#[test]
fn the_links_of_a_mounted_config_map_are_followed() {
    for whole_directory in [true, false] {
        let dir = Dir::new();
        let update = |version: &str, text: &str| {
            fs::create_dir(dir.at(version)).unwrap();
            dir.write(&format!("{version}/web.yaml"), text);
            symlink(version, dir.at("..tmp")).unwrap();
            fs::rename(dir.at("..tmp"), dir.at("..data")).unwrap();
        };
        update("..1", &services(&["a"]));
        symlink("..data/web.yaml", dir.at("web.yaml")).unwrap();
        let watch = follow(dir.at(if whole_directory { "" } else { "web.yaml" }));
        expect(&watch, &["a"], "beginning");
        update("..2", &services(&["b"]));
        fs::remove_dir_all(dir.at("..1")).unwrap();
        expect(&watch, &["b"], "updated once");
        update("..3", &services(&["c"]));
        expect(&watch, &["c"], "updated twice");
        dir.write("..3/web.yaml", &services(&["d"]));
        expect(&watch, &["d"], "written behind the links");
    }
}

#[test]
fn a_directory_behind_a_link_can_be_another_one() {
    let dir = Dir::new();
    for (directory, name) in [("one", "a"), ("two", "b")] {
        fs::create_dir(dir.at(directory)).unwrap();
        dir.write(&format!("{directory}/web.yaml"), &services(&[name]));
    }
    symlink("one", dir.at("current")).unwrap();
    let watch = follow(dir.at("current"));
    expect(&watch, &["a"], "beginning");
    symlink("two", dir.at("next")).unwrap();
    fs::rename(dir.at("next"), dir.at("current")).unwrap();
    expect(&watch, &["b"], "the link was swapped");
    dir.write("two/web.yaml", &services(&["c"]));
    expect(&watch, &["c"], "written");
}

#[test]
fn what_goes_away_keeps_its_objects_until_it_is_back() {
    let dir = Dir::new();
    fs::create_dir_all(dir.at("x/y")).unwrap();
    dir.write("x/y/a.yaml", &services(&["a"]));
    for path in ["x/y/a.yaml", "x/y"] {
        let watch = follow(dir.at(path));
        expect(&watch, &["a"], path);
        fs::rename(dir.at("x"), dir.at("z")).unwrap();
        let loaded = expect(&watch, &["a"], "gone");
        assert_eq!(loaded.broken, [dir.at("x/y/a.yaml")]);
        fs::create_dir_all(dir.at("x/y")).unwrap();
        dir.write("x/y/a.yaml", &services(&["b"]));
        expect(&watch, &["b"], "back");
        drop(watch);
        fs::remove_dir_all(dir.at("x")).unwrap();
        fs::rename(dir.at("z"), dir.at("x")).unwrap();
    }
}

/// What was written so far would be a good manifest, but the file is still open.
#[test]
fn a_file_that_is_being_written_is_waited_for() {
    let dir = Dir::new();
    let path = dir.write("a.yaml", &services(&["old"]));
    let watch = follow(&path);
    expect(&watch, &["old"], "beginning");
    let mut file = File::create(&path).unwrap();
    for name in ["a", "b"] {
        file.write_all(services(&[name]).as_bytes()).unwrap();
        std::thread::sleep(LONG);
    }
    drop(file);
    expect(&watch, &["a", "b"], "closed");
}

#[test]
fn many_changes_are_few_updates() {
    let dir = Dir::new();
    let watch = follow(dir.at(""));
    expect(&watch, &[], "beginning");
    let all: Vec<String> = (0..100).map(|i| format!("s{i:02}")).collect();
    for name in &all {
        dir.write(&format!("{name}.yaml"), &services(&[name]));
    }
    // One, where the machine is not too busy to write them all within the quiet time.
    let mut updates = 0;
    loop {
        let loaded = watch.updates().recv_timeout(SOON).unwrap_or_else(|e| panic!("after {updates} updates: {e}"));
        updates += 1;
        if names(&loaded) == all {
            break;
        }
    }
    assert!(updates <= 10, "{updates} updates for 100 files");
    expect_nothing(&watch, "afterwards");
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let dir = Dir::new();
    let error = watch(vec![dir.at("missing.yaml")]).expect_err("there is no such file");
    assert!(error.to_string().ends_with("missing.yaml: No such file or directory (os error 2)"), "{error}");
}
