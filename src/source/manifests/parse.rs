//! One document to objects: YAML or JSON, one object or a list of them. Of a list, what cannot be read of one item costs no
//! other.

use crate::shown::Clipped;
use crate::source::convert::Interner;

use super::document::{Document, DocumentError};
use super::sink::{Parsed, Sink};
use super::{json, yaml};

/// Why a document, or an object in it, cannot be read.
#[derive(Clone, Debug)]
pub struct ParseError {
    /// The line of the file, or the number of the document.
    pub place: String,
    /// What is wrong.
    pub message: String,
}

impl From<DocumentError> for ParseError {
    fn from(error: DocumentError) -> ParseError {
        ParseError { place: String::new(), message: error.to_string() }
    }
}

/// Reads a document. Text that begins with `{` and a quote is JSON, or else YAML that looks like it.
pub fn parse(document: &Document, file: &str, interner: &mut Interner) -> Result<Parsed, ParseError> {
    let body = document.text.strip_prefix("---").unwrap_or(&document.text).trim_start();
    let looks_like_json = body.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with(['"', '}']));
    let json_error = if looks_like_json {
        match json::parse(document, body, Sink::new(document, file, interner)) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => Some(error),
        }
    } else {
        None
    };
    yaml::parse(document, file, interner).map_err(|yaml_error| json_error.unwrap_or(yaml_error))
}

/// A library's message with the lines counted from the beginning of the file, and without the position that ends
/// it: that is the problem's place already.
pub fn relocated(message: &str, lines_before: usize) -> String {
    let mut parts = message.split("line ");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = part.split_at(digits);
        let position = rest.trim_start_matches(',').strip_prefix(" column ");
        match (number.parse::<usize>(), position) {
            (Ok(_), Some(column)) if column.bytes().all(|b| b.is_ascii_digit()) && text.ends_with(" at ") => {
                text.truncate(text.len() - " at ".len());
            }
            (Ok(number), Some(_)) => text.push_str(&format!("line {}{rest}", number + lines_before)),
            _ => text.push_str(&format!("line {part}")),
        }
    }
    Clipped(&text).to_string()
}
