//! Differences between modes that are known, and why there are: `known.txt`.

use super::Mode;
use super::behaviour::Observation;

const KNOWN: &str = include_str!("known.txt");

/// Why the modes of an observation differ from the first, where all that do are known to.
pub fn why(first: Mode, observation: &Observation) -> Option<String> {
    let expected = observation.outcomes.get(first.name())?;
    let others = observation.outcomes.iter().filter(|(_, outcome)| *outcome != expected);
    let reasons: Option<Vec<&str>> =
        others.map(|(mode, outcome)| reason(mode, observation, outcome, expected)).collect();
    let mut reasons = reasons?;
    reasons.dedup();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Written for what differs in the client's address alone.
const MASQUERADED: &str = "the same, masqueraded";

fn reason(mode: &str, observation: &Observation, outcome: &str, expected: &str) -> Option<&'static str> {
    let protocol = observation.frontend.rsplit('/').next().unwrap_or_default();
    let mode_and_protocol = format!("{mode}/{protocol}");
    let is_masqueraded = outcome == expected.replace("source kept", "masqueraded");
    let policy = if observation.local { "local" } else { "cluster" };
    let matches = |column: &str, value: &str| column == "*" || column.split(", ").any(|one| one == value);
    KNOWN.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).find_map(|line| {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [modes, kinds, policies, clients, seen, why] = columns.try_into().expect("six columns");
        let is_it = mode_and_protocol.starts_with(modes)
            && matches(kinds, observation.kind)
            && matches(policies, policy)
            && matches(clients, observation.client.name())
            && (seen == "*" || outcome == seen || (seen == MASQUERADED && is_masqueraded));
        is_it.then_some(why)
    })
}

#[cfg(test)]
mod tests {
    /// What is wrong with the file is found here, not by a user.
    #[test]
    fn every_line_has_its_columns() {
        for line in super::KNOWN.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            assert_eq!(line.split('|').count(), 6, "{line}");
        }
    }
}
