//! What each file said when it was last read to its end.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::source::Problem;
use crate::source::assemble::Assembler;
use crate::source::convert::Interner;
use crate::source::manifests::{Content, Loaded, is_stdin, is_stream, manifests_in, read};

/// The files behind some paths, and what they say.
pub struct Contents {
    paths: Vec<PathBuf>,
    /// The files behind each path, in the order of the paths.
    listings: Vec<Vec<PathBuf>>,
    files: HashMap<PathBuf, Content>,
}

impl Contents {
    /// Nothing is read yet.
    pub fn new(paths: Vec<PathBuf>) -> Contents {
        let listings = vec![Vec::new(); paths.len()];
        Contents { paths, listings, files: HashMap::new() }
    }

    /// The paths as they were given.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Reads all files again and says whether anything is different.
    pub fn read(&mut self) -> bool {
        let mut changed = false;
        for (path, listing) in self.paths.iter().zip(&mut self.listings) {
            let files = match fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => manifests_in(path).ok(),
                Err(_) if !is_stdin(path) && !listing.is_empty() => None,
                _ => Some(vec![path.clone()]),
            };
            // What cannot be listed now keeps its files, and these their objects.
            if let Some(files) = files.filter(|files| files != listing) {
                *listing = files;
                changed = true;
            }
        }
        let mut interner = Interner::default();
        let mut before = std::mem::take(&mut self.files);
        for file in self.listings.iter().flatten() {
            if self.files.contains_key(file) {
                continue;
            }
            let given = self.paths.contains(file);
            let content = match before.remove(file) {
                Some(old) if given && is_stream(file) => old,
                Some(old) => {
                    let new = keep_objects(read(file, given, &mut interner), &old);
                    changed |= new != old;
                    new
                }
                None => {
                    changed = true;
                    read(file, given, &mut interner)
                }
            };
            self.files.insert(file.clone(), content);
        }
        changed
    }

    /// What all files say together.
    pub fn assemble(&self) -> Loaded {
        let (mut loaded, mut assembler) = (Loaded::default(), Assembler::new());
        let mut left: HashMap<_, _> = self.files.iter().collect();
        for file in self.listings.iter().flatten() {
            let Some(content) = left.remove(file) else { continue };
            loaded.problems.extend(content.outcome.problems.iter().cloned());
            for object in &content.objects {
                assembler.add(object.clone(), &mut loaded.problems);
            }
            if content.outcome.broken {
                loaded.broken.push(file.clone());
            }
        }
        loaded.snapshot = assembler.finish(&mut loaded.problems);
        loaded
    }
}

/// A file that cannot be read to its end keeps the objects that it held.
fn keep_objects(mut new: Content, old: &Content) -> Content {
    if new.outcome.broken && !old.objects.is_empty() {
        new.objects.clone_from(&old.objects);
        if let Some(problem) = new.outcome.problems.last() {
            let object = problem.object.clone();
            let message = "its objects stay as they were before".into();
            new.outcome.problems.push(Problem { object, field: String::new(), message, skipped: false });
        }
    }
    new
}
