//! An explanation for people: what all ways have in common once, then where they part.

use std::fmt::{self, Write as _};

use super::explanation::{Explanation, OneWay, Other, Possible, Said};
use super::surroundings::Client;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { from, to, protocol, client, interface, possibilities, others } = self;
        write!(f, "{protocol} {from} -> {to}: from {client}")?;
        match (client, interface) {
            (Client::Node, _) => writeln!(f)?,
            (_, Some(name)) => writeln!(f, ", through {name}")?,
            (_, None) => writeln!(f, ", through an interface that is not known")?,
        }
        for (number, possible) in possibilities.iter().enumerate() {
            if possibilities.len() > 1 {
                writeln!(f, "\npossibility {} of {}:", number + 1, possibilities.len())?;
            }
            possible.fmt(f)?;
        }
        if !others.is_empty() {
            writeln!(f, "\nother clients")?;
        }
        others.iter().try_for_each(|other| other.fmt(f))
    }
}

impl fmt::Display for Possible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for assumption in &self.assumed {
            writeln!(f, "  if {assumption}")?;
        }
        for rule in &self.either {
            writeln!(f, "  whether or not {rule}")?;
        }
        let ways: Vec<&OneWay> = self.ways.iter().collect();
        let mut tree = Tree { out: String::new(), hook: String::new() };
        tree.write(&ways, 0, 1);
        f.write_str(&tree.out)?;
        if let Some(why) = &self.stopped {
            return writeln!(f, "\nstopped: {why}");
        }
        writeln!(f, "\noutcome")?;
        self.outcomes.iter().try_for_each(|ending| writeln!(f, "  {:>8}  {}", ending.share, ending.text))
    }
}

/// Ways as a tree.
struct Tree {
    out: String,
    hook: String,
}

impl Tree {
    /// Writes the steps from `at` on, of ways that were the same before.
    fn write(&mut self, ways: &[&OneWay], mut at: usize, depth: usize) {
        let Some(first) = ways.first() else { return };
        while let Some(step) = first.steps.get(at)
            && ways.iter().all(|way| way.steps.get(at) == Some(step))
        {
            self.step(step, depth);
            at += 1;
        }
        let indent = "  ".repeat(depth);
        if ways.len() == 1 || ways.iter().all(|way| way.steps.len() == at) {
            if let Some(outcome) = &first.outcome {
                let _ = writeln!(self.out, "{indent}=> {outcome}");
            }
        } else {
            for branch in ways.chunk_by(|a, b| a.steps.get(at) == b.steps.get(at)) {
                let hook = self.hook.clone();
                if let [way] = branch {
                    let _ = writeln!(self.out, "{}[{}]", "  ".repeat(depth), way.share);
                } else {
                    let _ = writeln!(self.out, "{}[{} ways]", "  ".repeat(depth), branch.len());
                }
                self.write(branch, at, depth + 1);
                self.hook = hook;
            }
        }
    }

    fn step(&mut self, step: &Said, depth: usize) {
        let indent = "  ".repeat(depth);
        if self.hook != step.hook {
            let _ = writeln!(self.out, "{}{}", "  ".repeat(depth - 1), step.hook);
            self.hook.clone_from(&step.hook);
        }
        let _ = write!(self.out, "{indent}{}: {}", step.place(), step.what);
        match &step.service {
            Some(service) => writeln!(self.out, "   # {service}"),
            None => writeln!(self.out),
        }
        .expect("a string takes everything");
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(from) = self.from else {
            return writeln!(f, "  {}: no address of one is known (--cluster-cidr, --node-ip)", self.client);
        };
        if self.same {
            return writeln!(f, "  {} ({from}): the same", self.client);
        }
        writeln!(f, "  {} ({from}): {}", self.client, self.outcomes.join(" or "))?;
        let Some(difference) = &self.difference else { return Ok(()) };
        for (who, step) in [("here", &difference.here), ("there", &difference.there)] {
            match step {
                Some(step) => writeln!(f, "    {who:5} {}: {}: {}", step.hook, step.place(), step.what)?,
                None => writeln!(f, "    {who:5} no further rule does anything")?,
            }
        }
        Ok(())
    }
}
