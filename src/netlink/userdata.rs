//! The user data that nft keeps with objects: a list of (8 bit type, 8 bit length, value). The kernel never looks at it.
//!
//! Only comments are read and written here; nft 1.0.6 keeps those of tables, chains, rules and elements as type 0, with
//! the NUL at the end. The user data of sets also says how to print their keys and is kept as it is.

use std::sync::Arc;

use super::attr::{Writer, padded};

const COMMENT: u8 = 0;

/// The longest comment in bytes that nft reads back from its own listing. A longer one is cut when it is sent.
pub const COMMENT_MAX: usize = 128;

/// A comment as it is sent: up to its first NUL, no longer than [`COMMENT_MAX`] bytes, and no character cut in two.
#[inline]
pub fn fitting(comment: &str) -> &str {
    if comment.len() <= COMMENT_MAX && !comment.as_bytes().contains(&0) {
        return comment;
    }
    let text = comment.split('\0').next().unwrap_or_default();
    let end = (0..=text.len().min(COMMENT_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// A comment as user data.
pub fn comment_bytes(comment: &str) -> Vec<u8> {
    let text = fitting(comment);
    [&[COMMENT, text.len() as u8 + 1], text.as_bytes(), &[0]].concat()
}

/// Writes a comment as the user data attribute `kind`.
#[inline]
pub fn put_comment(writer: &mut Writer, kind: u16, comment: &str) {
    let text = fitting(comment);
    writer.put_all(kind, [&[COMMENT, text.len() as u8 + 1], text.as_bytes(), &[0]]);
}

/// The bytes that [`put_comment`] takes.
#[inline]
pub fn comment_len(comment: &str) -> usize {
    padded(2 + fitting(comment).len() + 1)
}

/// The comment in some user data.
pub fn comment(mut userdata: &[u8]) -> Option<Arc<str>> {
    while let [kind, length, rest @ ..] = userdata {
        let value = rest.get(..usize::from(*length))?;
        if *kind == COMMENT {
            let text = String::from_utf8_lossy(value.strip_suffix(&[0])?);
            return Some(Arc::from(text.as_ref()));
        }
        userdata = &rest[value.len()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attr::Reader;

    fn sent(text: &str) -> Vec<u8> {
        let mut writer = Writer::default();
        put_comment(&mut writer, 6, text);
        assert_eq!(writer.bytes.len(), comment_len(text));
        Reader::new(&writer.bytes).next().unwrap().value.to_vec()
    }

    #[test]
    fn comments_are_laid_out_as_nft_does() {
        assert_eq!(sent("ab"), [0, 3, b'a', b'b', 0]);
        assert_eq!(comment(&sent("ab")).as_deref(), Some("ab"));
        assert_eq!(comment(&sent("")).as_deref(), Some(""));
        // Another entry may come first.
        assert_eq!(comment(&[9, 1, 7, 0, 2, b'x', 0]).as_deref(), Some("x"));
    }

    #[test]
    fn long_comments_are_cut_between_characters() {
        let long = format!("{}é", "a".repeat(127));
        assert_eq!(comment(&sent(&long)).as_deref(), Some(&long[..127]));
        assert_eq!(comment(&sent("a\0b")).as_deref(), Some("a"));
    }

    #[test]
    fn broken_user_data_has_no_comment() {
        for bytes in [&[][..], &[0], &[0, 0], &[0, 9, b'a'], &[0, 2, b'a', b'b'], &[1, 200, 0]] {
            assert_eq!(comment(bytes), None, "{bytes:?}");
        }
    }
}
