//! What is asked for.

use std::collections::BTreeMap;

use serde_json::Value;

/// The path and the parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub path: String,
    parameters: BTreeMap<String, String>,
}

impl Query {
    pub fn parse(target: &str) -> Query {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Query { path: path.into(), parameters: pairs.collect() }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }
}

fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'%', [a, b, after @ ..]) => {
                let hex = [*a, *b];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                rest = after;
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Whether the selectors pick the object: labels that must not be there, and fields that are or are not so.
pub fn matches(object: &Value, query: &Query) -> bool {
    let labels = query.get("labelSelector").unwrap_or_default().split(',').filter(|part| !part.is_empty());
    let mut fields = query.get("fieldSelector").unwrap_or_default().split(',').filter(|part| !part.is_empty());
    let has_none = labels.map(|part| part.strip_prefix('!').expect("other label selectors are not known here"));
    let mut unwanted = has_none.filter(|label| object["metadata"]["labels"].get(label).is_some());
    let field = |path: &str| object.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_str);
    unwanted.next().is_none()
        && fields.all(|part| match part.split_once("!=") {
            Some((path, value)) => field(path) != Some(value),
            None => part.split_once('=').is_some_and(|(path, value)| field(path) == Some(value)),
        })
}
