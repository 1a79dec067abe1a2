//! The words of a listing.

use std::fmt;

/// What there is, or that there is no more, in words.
pub fn shown(token: Option<Token>) -> String {
    token.map_or_else(|| "the end of the text".to_owned(), |token| token.to_string())
}

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// Anything between spaces and marks.
    Word(&'a str),
    /// What stands between quotation marks.
    Quoted(&'a str),
    /// One of `{ } , ;`.
    Mark(char),
    /// The end of a line.
    Line,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Quoted(text) => write!(f, "\"{text}\""),
            Token::Mark(mark) => write!(f, "\"{mark}\""),
            Token::Line => f.write_str("the end of the line"),
        }
    }
}

impl<'a> Token<'a> {
    /// The text of a word, quoted or not.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Token::Word(text) | Token::Quoted(text) => Some(text),
            Token::Mark(_) | Token::Line => None,
        }
    }
}

/// Walks a listing.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    rest: &'a str,
    /// The line of the next token.
    pub line: usize,
}

impl<'a> Tokens<'a> {
    /// From the beginning of a text.
    pub fn new(text: &'a str) -> Tokens<'a> {
        Tokens { rest: text, line: 1 }
    }

    /// The next token, without taking it.
    pub fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    /// The next token that is no end of a line.
    pub fn next_word(&mut self) -> Option<Token<'a>> {
        self.find(|token| *token != Token::Line)
    }

    /// Takes ends of lines.
    pub fn skip_lines(&mut self) {
        while self.peek() == Some(Token::Line) {
            self.next();
        }
    }

    /// What is left of the line, as it is written; up to its end, which is not taken.
    pub fn rest_of_line(&mut self) -> &'a str {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        line
    }

    /// What is still to be read.
    pub fn rest(&self) -> &'a str {
        self.rest
    }

    /// Takes `@name`, which a colon and something else may follow without a space; says whether one does.
    pub fn named(&mut self) -> Option<(&'a str, bool)> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let name = word.strip_prefix('@')?;
        match name.split_once(':') {
            Some((name, _)) => {
                self.rest = &self.rest[self.rest.find('@')? + 1 + name.len() + 1..];
                Some((name, true))
            }
            None => {
                self.next();
                Some((name, false))
            }
        }
    }

    /// Takes a colon that something follows without a space.
    pub fn colon(&mut self) -> bool {
        match self.rest.trim_start_matches([' ', '\t']).strip_prefix(':') {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips to behind the brace that closes one that was just opened.
    pub fn skip_block(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some(Token::Mark('{')) => depth += 1,
                Some(Token::Mark('}')) => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
        let first = self.rest.chars().next()?;
        let (token, length) = match first {
            '\n' => {
                self.line += 1;
                (Token::Line, 1)
            }
            '{' | '}' | ',' | ';' => (Token::Mark(first), 1),
            '"' => {
                let inside = &self.rest[1..];
                let end = inside.find('"').unwrap_or(inside.len());
                self.line += inside[..end].matches('\n').count();
                (Token::Quoted(&inside[..end]), (end + 2).min(self.rest.len()))
            }
            _ => {
                let is_end = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | ';' | '"');
                let end = self.rest.find(is_end).unwrap_or(self.rest.len());
                (Token::Word(&self.rest[..end]), end)
            }
        };
        self.rest = &self.rest[length..];
        Some(token)
    }
}

/// A duration such as `1d2h3m4s500ms`, in milliseconds.
pub fn duration_ms(text: &str) -> Option<u64> {
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let ms = match &rest[..unit] {
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        rest = &rest[unit..];
        total = total.checked_add(number.checked_mul(ms)?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_marks_and_lines() {
        let mut tokens = Tokens::new("a 10.0.0.1:80,b\n\t\"c d\" {x}");
        let all: Vec<Token> = tokens.by_ref().collect();
        use Token::*;
        let expected = [
            Word("a"),
            Word("10.0.0.1:80"),
            Mark(','),
            Word("b"),
            Line,
            Quoted("c d"),
            Mark('{'),
            Word("x"),
            Mark('}'),
        ];
        assert_eq!((all.as_slice(), tokens.line), (&expected[..], 2));
    }

    #[test]
    fn durations() {
        for (text, expected) in [("3h", Some(10_800_000)), ("1m30s500ms", Some(90_500)), ("3x", None), ("h", None)] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }
}
