//! The words of a rule as `iptables-save` prints it.

use std::borrow::Cow;

/// The words of one rule, in order. What the next option is can be looked at first.
#[derive(Debug)]
pub struct Words<'a> {
    words: Vec<Cow<'a, str>>,
    at: usize,
}

impl<'a> Words<'a> {
    /// Splits at spaces, but for those between quotation marks; none where a quotation has no end.
    pub fn of(text: &'a str) -> Option<Words<'a>> {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix('"') {
                Some(inside) => quoted(inside)?,
                None => {
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    (Cow::Borrowed(&rest[..end]), &rest[end..])
                }
            };
            words.push(word);
            rest = after.trim_start();
        }
        Some(Words { words, at: 0 })
    }

    /// The next word.
    pub fn next(&mut self) -> Option<&str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The next word as a value.
    pub fn parsed<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.next()?.parse().ok()
    }

    /// Passes over what belongs to an option that is not known: all up to the next match, target or common option.
    pub fn skip_values(&mut self) {
        let is_next = |word: &str| matches!(word, "!" | "-m" | "-j" | "-g" | "-s" | "-d" | "-p" | "-i" | "-o");
        while self.words.get(self.at).is_some_and(|word| !is_next(word)) {
            self.at += 1;
        }
    }
}

/// The text up to the closing quotation mark, and what follows it.
fn quoted(inside: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut word = String::new();
    let mut chars = inside.char_indices();
    loop {
        match chars.next()? {
            (at, '"') if !inside[..at].contains('\\') => {
                return Some((Cow::Borrowed(&inside[..at]), &inside[at + 1..]));
            }
            (at, '"') => return Some((Cow::Owned(word), &inside[at + 1..])),
            (_, '\\') => word.push(chars.next()?.1),
            (_, other) => word.push(other),
        }
    }
}
