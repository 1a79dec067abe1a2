//! Possibilities that come to the same, as one: whether the rules match that they differ in is no matter.

use crate::trace::{Assumption, Possibility};

/// A possibility, for all that come to the same.
#[derive(Clone, Debug)]
pub(super) struct Merged<'a> {
    /// What has to be taken for granted.
    pub assumed: Vec<Assumption>,
    /// Rules of which it is no matter whether they match.
    pub either: Vec<Assumption>,
    /// One of the possibilities.
    pub possibility: &'a Possibility,
}

/// Puts possibilities together that come to the same whether some rule matches or not.
pub(super) fn merged(found: &[Possibility]) -> Vec<Merged<'_>> {
    let mut all: Vec<Merged> = found
        .iter()
        .map(|possibility| {
            let assumed = possibility.assumptions.all().to_vec();
            Merged { assumed, either: Vec::new(), possibility }
        })
        .collect();
    while let Some((first, second, at)) = pair(&all) {
        let other = all.remove(second);
        let kept = &mut all[first];
        let needless = kept.assumed.remove(at);
        // the packet met this one before the others
        kept.either.retain(|there| there.place != needless.place);
        kept.either.insert(0, needless);
        for one in other.either {
            if !kept.either.iter().any(|there| there.place == one.place) {
                kept.either.push(one);
            }
        }
    }
    all
}

/// Two that come to the same and differ in one assumption, and in which.
fn pair(all: &[Merged]) -> Option<(usize, usize, usize)> {
    let pairs = (0..all.len()).flat_map(|first| (first + 1..all.len()).map(move |second| (first, second)));
    pairs.into_iter().find_map(|(first, second)| {
        let (one, other) = (&all[first], &all[second]);
        let at = difference(&one.assumed, &other.assumed)?;
        is_the_same(one.possibility, other.possibility).then_some((first, second, at))
    })
}

/// The only assumption that two differ in, where it is the opposite.
fn difference(one: &[Assumption], other: &[Assumption]) -> Option<usize> {
    let mut differing = one.iter().zip(other).enumerate().filter(|(_, (one, other))| one != other);
    let (at, (here, there)) = differing.next().filter(|_| one.len() == other.len())?;
    (differing.next().is_none() && here.place == there.place).then_some(at)
}

fn is_the_same(one: &Possibility, other: &Possibility) -> bool {
    match (&one.trace, &other.trace) {
        (Ok(one), Ok(other)) => one.outcomes() == other.outcomes(),
        (Err(one), Err(other)) => (&one.place, &one.what) == (&other.place, &other.what),
        _ => false,
    }
}
