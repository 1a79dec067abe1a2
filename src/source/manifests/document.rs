//! Cutting text into YAML documents, one at a time, so that a broken one does not take the others along and a long
//! stream needs no memory.

use std::io::{self, BufRead};

/// A document of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// Its number in the file, from 1.
    pub number: usize,
    /// The number of lines before it.
    pub lines_before: usize,
    /// Its text, with the marker line `---` that begins it.
    pub text: String,
}

/// Why a file cannot be cut into documents.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Zero bytes within.
    #[error("line {line}: this is a binary file, not YAML or JSON")]
    Binary {
        /// The line with the first of them.
        line: usize,
    },
    /// Text in another encoding.
    #[error("this is UTF-16 text; save it as UTF-8")]
    Utf16,
    /// Text in an unknown encoding.
    #[error("line {line}: this is not UTF-8 text")]
    NotUtf8 {
        /// The line with the first such byte.
        line: usize,
    },
}

/// The documents of a file. It ends after the first error.
pub struct Documents<R> {
    reader: R,
    /// The marker line that begins the next document.
    pending: String,
    lines: usize,
    documents: usize,
    ended: bool,
}

impl<R: BufRead> Documents<R> {
    /// The documents in what the reader gives.
    pub fn new(reader: R) -> Documents<R> {
        Documents { reader, pending: String::new(), lines: 0, documents: 0, ended: false }
    }

    /// The next line with its end, as text.
    fn line(&mut self) -> Result<Option<String>, DocumentError> {
        let mut line = Vec::new();
        let mut ended = false;
        while !ended {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let piece = &buffer[..end.map_or(buffer.len(), |end| end + 1)];
            ended = end.is_some() || piece.is_empty();
            line.extend_from_slice(piece);
            let length = piece.len();
            self.reader.consume(length);
            if self.lines == 0 && (line.starts_with(&[0xff, 0xfe]) || line.starts_with(&[0xfe, 0xff])) {
                return Err(DocumentError::Utf16);
            }
            // at once: a binary file may be one line without an end
            if line[line.len() - length..].contains(&0) {
                return Err(DocumentError::Binary { line: self.lines + 1 });
            }
        }
        if line.is_empty() {
            return Ok(None);
        }
        self.lines += 1;
        let mut text = String::from_utf8(line).map_err(|_| DocumentError::NotUtf8 { line: self.lines })?;
        if self.lines == 1 && text.starts_with('\u{feff}') {
            text.remove(0);
        }
        Ok(Some(text))
    }

    /// The next document that holds more than comments and directives.
    fn document(&mut self) -> Result<Option<Document>, DocumentError> {
        loop {
            let mut text = std::mem::take(&mut self.pending);
            let lines_before = self.lines - usize::from(!text.is_empty());
            let mut last = false;
            loop {
                match self.line()? {
                    None => {
                        last = true;
                        break;
                    }
                    Some(line) if is_marker(&line, "---") => {
                        self.pending = line;
                        break;
                    }
                    Some(line) if is_marker(&line, "...") => break,
                    Some(line) => text.push_str(&line),
                }
            }
            if !is_blank(&text) {
                self.documents += 1;
                return Ok(Some(Document { number: self.documents, lines_before, text }));
            }
            if last {
                return Ok(None);
            }
        }
    }
}

impl<R: BufRead> Iterator for Documents<R> {
    type Item = Result<Document, DocumentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.document().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Whether the line is a document marker. YAML lets it stand at the beginning of a line for nothing else.
fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether there are only markers, directives, comments and blanks.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| {
        let rest = line.strip_prefix("---").unwrap_or(line).trim_start();
        rest.is_empty() || rest.starts_with('#') || line.starts_with('%')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(text: &[u8]) -> Vec<Result<(usize, usize, String), String>> {
        Documents::new(text).map(|d| d.map(|d| (d.number, d.lines_before, d.text)).map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn documents_are_cut_at_their_markers() {
        let text =
            b"# first\na: 1\n---\n# only a comment\n--- # second\nb: |\n  ---\n  x\n...\n%YAML 1.2\n---\r\n-----\n";
        let want = [
            Ok((1, 0, "# first\na: 1\n".to_string())),
            Ok((2, 4, "--- # second\nb: |\n  ---\n  x\n".to_string())),
            Ok((3, 10, "---\r\n-----\n".to_string())),
        ];
        assert_eq!(documents(text), want);
    }

    #[test]
    fn nothing_but_blanks_is_no_document() {
        for text in ["", "\n\n", "---\n", "---\n---\n...\n", "# x\n---\n  # y\n", "\u{feff}"] {
            assert_eq!(documents(text.as_bytes()), [], "{text:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_told_and_ends_the_file() {
        for (text, want) in [
            (&b"a: 1\n---\nb\0c\n"[..], "line 3: this is a binary file, not YAML or JSON"),
            (&b"\xff\xfea\0:\0"[..], "this is UTF-16 text; save it as UTF-8"),
            (&b"a: 1\nb: \xe9\n"[..], "line 2: this is not UTF-8 text"),
        ] {
            assert_eq!(documents(text).pop(), Some(Err(want.to_string())), "{text:?}");
        }
    }
}
