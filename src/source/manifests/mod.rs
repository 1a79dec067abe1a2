//! Manifests: files, directories and standard input.

mod block;
mod document;
mod files;
mod flow;
mod glimpse;
mod json;
mod parse;
mod sink;
mod strict;
mod yaml;

use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::assemble::Assembler;
use super::convert::{Interner, Object};
use super::{Problem, Snapshot};

use document::Documents;
use parse::parse;

pub use files::{LoadError, display};
pub(super) use files::{expand, is_manifest, is_stdin, is_stream, manifests_in};

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
    let (mut interner, mut assembler) = (Interner::default(), Assembler::new());
    let (mut problems, mut broken) = (Vec::new(), Vec::new());
    for path in expand(paths)? {
        let mut repeated = Vec::new();
        let outcome =
            read_each(&path, paths.contains(&path), &mut interner, |object| assembler.add(object, &mut repeated));
        problems.extend(outcome.problems);
        problems.append(&mut repeated);
        if outcome.broken {
            broken.push(path);
        }
    }
    Ok(Loaded { snapshot: assembler.finish(&mut problems), problems, broken })
}

/// Reads manifests from memory; `name` is what messages call them.
pub fn load_text(text: &str, name: &str) -> Loaded {
    let (mut assembler, mut repeated) = (Assembler::new(), Vec::new());
    let take = |object| assembler.add(object, &mut repeated);
    let Outcome { mut problems, broken } =
        read_documents(Documents::new(text.as_bytes()), name, &mut Interner::default(), take);
    problems.append(&mut repeated);
    let broken = if broken { vec![PathBuf::from(name)] } else { Vec::new() };
    Loaded { snapshot: assembler.finish(&mut problems), problems, broken }
}

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content {
    /// The objects, in their order.
    pub objects: Vec<Object>,
    /// How reading it went.
    pub outcome: Outcome,
}

/// How reading a file went.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// What is wrong with the file, or with its objects.
    pub problems: Vec<Problem>,
    /// Whether a part of the file could not be read at all.
    pub broken: bool,
}

impl Outcome {
    fn broken(&mut self, file: &str, place: String, message: String) {
        self.problems.push(Problem { object: file.into(), field: place, message, skipped: true });
        self.broken = true;
    }
}

/// Reads one file, or standard input. `given` is whether somebody asked for the path itself.
pub(super) fn read(path: &Path, given: bool, interner: &mut Interner) -> Content {
    let mut objects = Vec::new();
    let outcome = read_each(path, given, interner, |object| objects.push(object));
    // they stay
    objects.shrink_to_fit();
    Content { objects, outcome }
}

/// Reads one file, or standard input, and gives the objects away document by document.
fn read_each(path: &Path, given: bool, interner: &mut Interner, take: impl FnMut(Object)) -> Outcome {
    let file = files::display(path);
    match files::open(path, given) {
        Ok(reader) => read_documents(Documents::new(reader), &file, interner, take),
        Err(error) => {
            let mut outcome = Outcome::default();
            outcome.broken(&file, String::new(), error.to_string());
            outcome
        }
    }
}

fn read_documents<R: BufRead>(
    documents: Documents<R>,
    file: &str,
    interner: &mut Interner,
    mut take: impl FnMut(Object),
) -> Outcome {
    let (mut outcome, mut items) = (Outcome::default(), 0);
    for document in documents {
        let parsed = match document {
            Ok(document) => parse(&document, file, interner),
            Err(error) => Err(error.into()),
        };
        match parsed {
            Ok(parsed) => {
                items += parsed.items;
                parsed.objects.into_iter().for_each(&mut take);
                outcome.problems.extend(parsed.problems);
                parsed.unreadable.into_iter().for_each(|error| outcome.broken(file, error.place, error.message));
            }
            Err(error) => outcome.broken(file, error.place, error.message),
        }
    }
    if items == 0 && !outcome.broken {
        outcome.broken(file, String::new(), "holds no objects".into());
    }
    outcome
}
