//! Differences between modes that are known, and why there are: `known.txt`.

use super::Mode;
use super::behaviour::Observation;

/// Written for what differs in the client's address alone.
const MASQUERADED: &str = "the same, masqueraded";

/// A list of them.
#[derive(Clone, Debug)]
pub struct Known(Vec<Line>);

/// One difference, of many connections.
#[derive(Clone, Debug)]
struct Line {
    /// The mode, or what the names of several begin with; a protocol may follow it (`ipvs/sctp`).
    mode: String,
    kinds: String,
    policies: String,
    clients: String,
    /// What the first mode does, and what this one does.
    outcomes: [String; 2],
    why: String,
}

impl Default for Known {
    /// Those that svcmap knows itself.
    fn default() -> Known {
        Known::read(include_str!("known.txt")).expect("a test reads it")
    }
}

impl Known {
    /// Reads a list: a line for each difference, its columns separated by `|`; `#` begins a comment.
    ///
    /// # Errors
    /// A line does not have its six columns.
    pub fn read(text: &str) -> Result<Known, String> {
        let is_line = |(_, line): &(usize, &str)| !line.starts_with('#') && !line.trim().is_empty();
        let lines = text.lines().enumerate().filter(is_line).map(|(number, line)| {
            Line::read(line).ok_or_else(|| {
                format!("line {}: expected mode | kinds | policy | clients | outcomes | why: {line}", number + 1)
            })
        });
        Ok(Known(lines.collect::<Result<_, _>>()?))
    }

    /// Why the modes of an observation differ from the first, where all that do are known to.
    pub(super) fn why(&self, first: Mode, observation: &Observation) -> Option<String> {
        let expected = observation.outcomes.get(first.name())?;
        let others = observation.outcomes.iter().filter(|(_, outcome)| *outcome != expected);
        let reason = |(mode, outcome): (&&str, &String)| {
            let line = self.0.iter().find(|line| line.matches(mode, observation, [expected, outcome]));
            line.map(|line| line.why.as_str())
        };
        let mut reasons = others.map(reason).collect::<Option<Vec<&str>>>()?;
        reasons.dedup();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

impl Line {
    fn read(line: &str) -> Option<Line> {
        let columns: Vec<String> = line.split('|').map(|column| column.trim().to_owned()).collect();
        let [mode, kinds, policies, clients, outcomes, why] = columns.try_into().ok()?;
        let (expected, seen) = outcomes.split_once(" -> ").unwrap_or(("*", &outcomes));
        let outcomes = [expected, seen].map(|outcome| outcome.trim().to_owned());
        Some(Line { mode, kinds, policies, clients, outcomes, why })
    }

    fn matches(&self, mode: &str, observation: &Observation, outcomes: [&str; 2]) -> bool {
        let one_of = |column: &str, value: &str| column == "*" || column.split(", ").any(|one| one == value);
        // outcomes have commas in them
        let is = |column: &str, value: &str| column == "*" || column.split(" or ").any(|one| one == value);
        let [expected, seen] = outcomes;
        let is_masqueraded = self.outcomes[1] == MASQUERADED && seen == expected.replace("source kept", "masqueraded");
        let protocol = observation.frontend.rsplit('/').next().unwrap_or_default();
        format!("{mode}/{protocol}").starts_with(&self.mode)
            && one_of(&self.kinds, observation.kind)
            && one_of(&self.policies, if observation.local { "local" } else { "cluster" })
            && one_of(&self.clients, observation.client.name())
            && is(&self.outcomes[0], expected)
            && (is_masqueraded || is(&self.outcomes[1], seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Client;

    fn seen(client: Client, outcomes: [(&'static str, &str); 2]) -> Observation {
        Observation {
            service: "default/web:http".into(),
            frontend: "192.0.2.1:80/TCP".into(),
            kind: "external",
            local: false,
            client,
            outcomes: outcomes.map(|(mode, outcome)| (mode, outcome.to_owned())).into(),
            known: None,
        }
    }

    /// What is wrong with the file is found here, not by a user.
    #[test]
    fn every_line_of_the_file_can_be_read() {
        assert!(!Known::default().0.is_empty());
    }

    #[test]
    fn a_line_is_for_what_it_says_alone() {
        let known =
            Known::read("# a comment\n\niptables | external | cluster | node, pod | refused -> passed on | so it is\n");
        let known = known.unwrap();
        let why = |client, nftables, mode, other| {
            known.why(Mode::Nftables, &seen(client, [("nftables", nftables), (mode, other)]))
        };
        assert_eq!(why(Client::Node, "refused", "iptables-legacy", "passed on").as_deref(), Some("so it is"));
        assert_eq!(why(Client::Outside, "refused", "iptables", "passed on"), None, "another client");
        assert_eq!(why(Client::Node, "no answer", "iptables", "passed on"), None, "expected something else");
        assert_eq!(why(Client::Node, "refused", "iptables", "no answer"), None, "something else happened");
        assert_eq!(why(Client::Node, "refused", "ipvs", "passed on"), None, "another mode");
    }

    #[test]
    fn a_line_without_its_columns_is_named() {
        assert!(Known::read("iptables | external | so it is").unwrap_err().starts_with("line 1: expected mode |"));
    }
}
