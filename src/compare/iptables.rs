//! kube-proxy's iptables layout, loaded by a variant of `iptables-restore`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::backend::{Backend, Loaded};
use crate::iptables::Ruleset;
use crate::lab::{Namespace, Spent, Stopwatch};
use crate::objects::Family;
use crate::plan::{Plan, PlanChange};

/// The lock that keeps others who change the host's rules out. There is nobody else in the namespace, and an ordinary user
/// may not take the host's.
const LOCK: &str = "XTABLES_LOCKFILE=/dev/null";

/// What is loaded, and by what.
pub struct Iptables<'a> {
    namespace: &'a Namespace,
    /// What stands between the name of the program and `-restore`.
    variant: &'static str,
    version: String,
    plan: Plan,
    loaded: Vec<(Family, Ruleset)>,
}

impl Iptables<'_> {
    /// A variant (`-nft`, `-legacy`, or nothing for whichever is the default) in a namespace.
    ///
    /// # Errors
    /// The program is not there, or the kernel does not have such tables.
    pub fn open<'a>(namespace: &'a Namespace, variant: &'static str) -> Result<Iptables<'a>> {
        let mut iptables =
            Iptables { namespace, variant, version: String::new(), plan: Plan::default(), loaded: Vec::new() };
        iptables.version = iptables.run(Family::V4, &["--version"], "").context("Debian's package is iptables")?;
        iptables.run(Family::V4, &["--noflush"], "*nat\nCOMMIT\n*filter\nCOMMIT\n")?;
        Ok(iptables)
    }

    fn run(&self, family: Family, arguments: &[&str], text: &str) -> Result<String> {
        let ip = match family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        let program = format!("{ip}{}-restore", self.variant);
        self.namespace.command("env", &[&[LOCK, &program], arguments].concat(), text)
    }

    /// The families that the Services have.
    fn families(plan: &Plan) -> impl Iterator<Item = Family> {
        Family::BOTH.into_iter().filter(|family| plan.ports.keys().any(|id| id.family == *family))
    }
}

impl Backend for Iptables<'_> {
    fn loader(&self) -> String {
        self.version.trim().into()
    }

    fn load(&mut self, plan: &Plan) -> Result<Loaded> {
        self.plan = plan.clone();
        self.loaded = Self::families(plan).map(|family| (family, Ruleset::new(plan, family))).collect();
        let watch = Stopwatch::start()?;
        let mut bytes = 0;
        for (family, rules) in &self.loaded {
            let text = rules.text();
            bytes += text.len();
            self.run(*family, &[], &text)?;
        }
        let spent = watch.spent()?;
        Ok(Loaded { objects: self.loaded.iter().map(|(_, rules)| rules.rules()).sum(), bytes, spent })
    }

    fn kinds(&mut self) -> Result<BTreeMap<&'static str, usize>> {
        let count = |of: fn(&Ruleset) -> usize| self.loaded.iter().map(|(_, rules)| of(rules)).sum();
        Ok([("rules", count(Ruleset::rules)), ("chains", count(Ruleset::chains))].into())
    }

    /// Each family in turn, as kube-proxy has it; only what happens from the text on counts.
    fn change(&mut self, change: PlanChange) -> Result<Spent> {
        self.plan.follow(change);
        let mut all = Spent::default();
        for at in 0..self.loaded.len() {
            let family = self.loaded[at].0;
            let wanted = Ruleset::new(&self.plan, family);
            if wanted == self.loaded[at].1 {
                continue;
            }
            let text = wanted.change_from(&self.loaded[at].1);
            let watch = Stopwatch::start()?;
            self.run(family, &["--noflush"], &text)?;
            let spent = watch.spent()?;
            all.processor += spent.processor;
            all.clock += spent.clock;
            self.loaded[at].1 = wanted;
        }
        Ok(all)
    }
}
