//! What `iptables-save` printed of a table, as far as it matters for what is loaded next.

use std::collections::BTreeSet;

use super::names::is_ours;

/// A table as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Our chains.
    pub chains: BTreeSet<String>,
    /// The rules of other chains that lead to ours, without their `-A`.
    pub jumps: Vec<String>,
    /// How many rules stand in our chains.
    pub rules: usize,
}

impl Saved {
    /// Reads the text.
    pub fn read(text: &str) -> Saved {
        let mut saved = Saved::default();
        for line in text.lines() {
            if let Some(chain) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
                saved.chains.extend(is_ours(chain).then(|| chain.to_owned()));
            } else if let Some(rule) = line.strip_prefix("-A ") {
                let chain = rule.split(' ').next().unwrap_or_default();
                if is_ours(chain) {
                    saved.rules += 1;
                } else if target(rule).is_some_and(is_ours) {
                    saved.jumps.push(rule.to_owned());
                }
            }
        }
        saved
    }

    /// Whether there is nothing of ours.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.jumps.is_empty()
    }
}

/// Where a rule leads to. Comments have quotes around them where they have blanks in them.
fn target(rule: &str) -> Option<&str> {
    let outside = |at: &usize| rule[..*at].matches('"').count().is_multiple_of(2);
    let at = rule.match_indices(" -j ").map(|(at, _)| at).find(outside)?;
    rule[at + 4..].split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_counts() {
        let saved = Saved::read(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n\
             -A PREROUTING -m comment --comment \"to -j KUBE-X\" -j DOCKER\n\
             -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
             -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA\nCOMMIT\n",
        );
        assert_eq!(saved.chains, BTreeSet::from(["KUBE-SERVICES".to_owned()]));
        assert_eq!(saved.jumps, ["PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES"]);
        assert_eq!(saved.rules, 1);
    }
}
