//! Manifests: files, directories and standard input.

mod document;
mod files;
mod parse;

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::assemble::assemble;
use super::convert::{Interner, Object};
use super::{Problem, Snapshot};

use document::Documents;
use parse::parse;

pub use files::LoadError;
pub(super) use files::{expand, is_manifest, is_stdin, manifests_in};

/// What manifests say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The objects that can be used.
    pub snapshot: Snapshot,
    /// What cannot be used, or only in part.
    pub problems: Vec<Problem>,
    /// The files that could not be read to their end. Their other objects may be missing from the snapshot, so that
    /// it is not safe to remove what it does not hold.
    pub broken: Vec<PathBuf>,
}

/// Reads manifests as `kubectl -f` does: of a directory the `*.yaml`, `*.yml` and `*.json` files in it, of `-`
/// standard input.
///
/// # Errors
/// A path that was asked for does not exist or cannot be opened, or a directory holds no manifests.
pub fn load(paths: &[PathBuf]) -> Result<Loaded, LoadError> {
    let (mut interner, mut objects) = (Interner::default(), Vec::new());
    let mut loaded = Loaded::default();
    for path in expand(paths)? {
        let content = read(&path, &mut interner);
        objects.extend(content.objects);
        loaded.problems.extend(content.problems);
        if content.broken {
            loaded.broken.push(path);
        }
    }
    loaded.snapshot = assemble(objects, &mut loaded.problems);
    Ok(loaded)
}

/// Reads manifests from memory; `name` is what messages call them.
pub fn load_text(text: &str, name: &str) -> Loaded {
    let content = read_documents(Documents::new(text.as_bytes()), name, &mut Interner::default());
    let broken = if content.broken { vec![PathBuf::from(name)] } else { Vec::new() };
    let mut loaded = Loaded { snapshot: Snapshot::default(), problems: content.problems, broken };
    loaded.snapshot = assemble(content.objects, &mut loaded.problems);
    loaded
}

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content {
    /// The objects, in their order.
    pub objects: Vec<Object>,
    /// What is wrong with them, or with the file.
    pub problems: Vec<Problem>,
    /// Whether a part of the file could not be read at all.
    pub broken: bool,
}

impl Content {
    fn broken(&mut self, file: &str, place: String, message: String) {
        self.problems.push(Problem { object: file.into(), field: place, message, skipped: true });
        self.broken = true;
    }
}

/// Reads one file, or standard input.
pub(super) fn read(path: &Path, interner: &mut Interner) -> Content {
    let file = files::display(path);
    match files::open(path) {
        Ok(reader) => read_documents(Documents::new(reader), &file, interner),
        Err(error) => {
            let mut content = Content::default();
            content.broken(&file, String::new(), error.to_string());
            content
        }
    }
}

fn read_documents<R: BufRead>(documents: Documents<R>, file: &str, interner: &mut Interner) -> Content {
    let (mut content, mut items) = (Content::default(), 0);
    for document in documents {
        let parsed = match document {
            Ok(document) => parse(&document, file, interner),
            Err(error) => Err(error.into()),
        };
        match parsed {
            Ok(parsed) => {
                items += parsed.items;
                content.objects.extend(parsed.objects);
                content.problems.extend(parsed.problems);
            }
            Err(error) => content.broken(file, error.place, error.message),
        }
    }
    if items == 0 && !content.broken {
        content.broken(file, String::new(), "holds no objects".into());
    }
    content
}
