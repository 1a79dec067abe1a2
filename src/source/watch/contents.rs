//! What each file said when it was last read to its end.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::listing::Listing;
use super::stamp::Stamp;
use crate::source::Problem;
use crate::source::assemble::Assembler;
use crate::source::convert::Interner;
use crate::source::manifests::{Content, Loaded, is_stream, read};

/// The files behind some paths, and what they say.
pub struct Contents {
    paths: Vec<PathBuf>,
    /// The files behind each path, in the order of the paths.
    listings: Vec<Listing>,
    files: HashMap<PathBuf, File>,
    interner: Interner,
}

/// A file that was read.
struct File {
    content: Content,
    /// What it looked like then; nothing where that does not tell whether it is still the same.
    stamp: Option<Stamp>,
}

/// What looking at all files came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether anything is different.
    pub changed: bool,
    /// How many files were read.
    pub read: usize,
}

impl Contents {
    /// Nothing is read yet.
    pub fn new(paths: Vec<PathBuf>) -> Contents {
        let listings = paths.iter().map(|_| Listing::default()).collect();
        Contents { paths, listings, files: HashMap::new(), interner: Interner::default() }
    }

    /// The paths as they were given.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether a directory has to be looked at again without being told: what is mounted there changes nothing in it.
    pub fn is_waiting(&self) -> bool {
        self.listings.iter().any(Listing::is_waiting)
    }

    /// Reads the files that may have changed.
    pub fn look(&mut self) -> Look {
        let mut look = Look::default();
        for (path, listing) in self.paths.iter().zip(&mut self.listings) {
            look.changed |= listing.look(path);
        }
        let mut before = std::mem::take(&mut self.files);
        let names = self.listings.iter().flat_map(Listing::files);
        for name in names {
            if self.files.contains_key(name) {
                continue;
            }
            let given = self.paths.contains(name);
            // before it is read: what is written meanwhile makes it another one
            let stamp = Stamp::of(name);
            let file = match before.remove(name) {
                Some(old) if (given && is_stream(name)) || (stamp.is_some() && old.stamp == stamp) => old,
                old => {
                    look.read += 1;
                    let content = read_anew(name, given, old.as_ref(), &mut self.interner);
                    look.changed |= old.is_none_or(|old| old.content != content);
                    File { content, stamp }
                }
            };
            self.files.insert(name.clone(), file);
        }
        drop(before);
        self.interner.prune();
        look
    }

    /// What all files say together.
    pub fn assemble(&self) -> Loaded {
        let (mut loaded, mut assembler) = (Loaded::default(), Assembler::new());
        let mut left: HashMap<_, _> = self.files.iter().collect();
        for (path, listing) in self.paths.iter().zip(&self.listings) {
            if let Some(problem) = listing.problem(path) {
                loaded.problems.push(problem);
                loaded.broken.push(path.clone());
            }
            for file in listing.files() {
                let Some(File { content, .. }) = left.remove(file) else { continue };
                loaded.problems.extend(content.outcome.problems.iter().cloned());
                for object in &content.objects {
                    assembler.add(object.clone(), &mut loaded.problems);
                }
                if content.outcome.broken {
                    loaded.broken.push(file.clone());
                }
            }
        }
        loaded.snapshot = assembler.finish(&mut loaded.problems);
        loaded
    }
}

fn read_anew(name: &Path, given: bool, old: Option<&File>, interner: &mut Interner) -> Content {
    let new = read(name, given, interner);
    match old {
        Some(old) if new.outcome.broken => keep_objects(new, &old.content),
        _ => new,
    }
}

/// A file that cannot be read to its end keeps the objects that it held and does not name any more: they may stand where
/// it cannot be read.
fn keep_objects(mut new: Content, old: &Content) -> Content {
    let named: HashSet<_> = new.objects.iter().map(|object| object.identity()).collect();
    let kept: Vec<_> = old.objects.iter().filter(|object| !named.contains(&object.identity())).cloned().collect();
    if !kept.is_empty()
        && let Some(problem) = new.outcome.problems.last()
    {
        let object = problem.object.clone();
        let message = match new.objects.is_empty() {
            true => "its objects stay as they were before",
            false => "of its objects, those that it named before and does not name now stay as they were",
        };
        new.outcome.problems.push(Problem { object, field: String::new(), message: message.into(), skipped: false });
        new.objects.extend(kept);
    }
    new
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread::sleep;

    use super::*;
    use crate::source::watch::stamp::SETTLED;

    fn service(name: &str, address: &str) -> String {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: {address}}}\n")
    }

    #[test]
    fn only_what_changed_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for i in 0..10 {
            fs::write(at(&format!("{i}.yaml")), service(&format!("s{i}"), "None")).unwrap();
        }
        sleep(2 * SETTLED);
        let mut contents = Contents::new(vec![directory.path().into()]);
        assert_eq!(contents.look(), Look { changed: true, read: 10 });
        assert_eq!(contents.look(), Look { changed: false, read: 0 });
        // as long as the one before, so that its time tells it
        fs::write(at("3.yaml"), service("x3", "None")).unwrap();
        assert_eq!(contents.look(), Look { changed: true, read: 1 });
        fs::rename(at("4.yaml"), at("5.yaml")).unwrap();
        sleep(2 * SETTLED);
        assert_eq!(contents.look(), Look { changed: true, read: 2 }, "5, and 3 that was too new to be sure of");
        assert_eq!(contents.look(), Look { changed: false, read: 0 });
        assert_eq!(contents.assemble().snapshot.services.len(), 9);
    }

    #[test]
    fn what_is_written_while_it_is_read_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut contents = Contents::new(vec![directory.path().into()]);
        for name in ["a", "b", "c", "d"] {
            fs::write(directory.path().join("a.yaml"), service(name, "None")).unwrap();
            assert_eq!(contents.look(), Look { changed: true, read: 1 });
        }
    }

    #[test]
    fn a_bad_item_keeps_its_object_and_the_others_change() {
        let directory = tempfile::tempdir().unwrap();
        let mut contents = Contents::new(vec![directory.path().into()]);
        let list = |items: [(&str, &str); 2]| {
            let items = items.map(|(name, address)| service(name, address).trim_end().replace('\n', "\n  "));
            format!("kind: List\napiVersion: v1\nitems:\n- {}\n- {}\n", items[0], items[1])
        };
        let mut look = |items| {
            fs::write(directory.path().join("a.yaml"), list(items)).unwrap();
            contents.look();
            let loaded = contents.assemble();
            let addresses = loaded.snapshot.services.iter().map(|s| format!("{} {:?}", s.key.name, s.cluster_ips));
            (addresses.collect::<Vec<_>>(), loaded.broken.len())
        };
        let said = |lines: [&str; 2], broken| (lines.map(String::from).to_vec(), broken);
        assert_eq!(look([("a", "10.0.0.1"), ("b", "10.0.0.2")]), said(["a [10.0.0.1]", "b [10.0.0.2]"], 0));
        assert_eq!(look([("a", ".inf"), ("b", "10.0.0.3")]), said(["b [10.0.0.3]", "a [10.0.0.1]"], 1));
        assert_eq!(look([("a", "10.0.0.4"), ("b", "10.0.0.3")]), said(["a [10.0.0.4]", "b [10.0.0.3]"], 0));
    }
}
