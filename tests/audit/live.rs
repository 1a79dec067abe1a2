//! What is in this network namespace is read without any listing.

use std::path::Path;

use crate::command::audit;
use crate::common::program::with_input;
use crate::peers::{IPTABLES, NFTABLES};
use crate::{RULESETS, of_manifests, program, sample, script};

netns_test! {
    fn the_kernels_rules_are_read_without_any_listing() {
        let services = format!("{RULESETS}/services.yaml");
        let (status, said, errors) = audit(&["-f", &services], "");
        assert_eq!(status, Some(1), "{said}{errors}");
        assert!(said.starts_with("nothing of Services: 0 Service ports\n") && said.contains("+ ip cluster IP 10.96.1.5:80/tcp"), "{said}");
        let (_, own, _) = with_input(&["render", "-f", &services], "");
        for (name, script) in [("svcmap", own.as_str()), ("kube-proxy (nftables)", &sample(NFTABLES[1]))] {
            program("nft", &["-f", "-"], &format!("flush ruleset\n{script}"));
            let (status, said, errors) = audit(&["-f", &services], "");
            assert_eq!(status, Some(0), "{said}{errors}");
            assert!(said.starts_with(&format!("{name}: 6 Service ports\n")), "{said}");
        }
    }
}

netns_test! {
    fn rules_of_iptables_are_listed_by_their_programs() {
        let services = format!("{RULESETS}/services.yaml");
        for variant in ["nft", "legacy"] {
            program(&format!("iptables-{variant}-restore"), &[], &sample(IPTABLES));
            let (status, said, errors) = audit(&["-f", &services], "");
            assert_eq!(status, Some(0), "{variant}: {said}{errors}");
            assert!(said.starts_with("kube-proxy (iptables): 6 Service ports\n"), "{said}");
            assert!(said.ends_with("\ndifferences: 0\n\nfindings: 0\n"), "{said}");
            if variant == "nft" {
                for table in ["nat", "filter"] {
                    program("nft", &["delete", "table", "ip", table], "");
                }
            }
        }
        // both makes at once, and svcmap's own tables beside them
        program("iptables-nft-restore", &[], &sample(IPTABLES));
        program("nft", &["-f", "-"], &script(&of_manifests(&Path::new(RULESETS).join("services.yaml"))));
        let (status, said, errors) = audit(&["-f", &services], "");
        assert_eq!(status, Some(1), "{said}{errors}");
        for expected in [
            "leftover: there are rules of svcmap and of kube-proxy (iptables)",
            "leftover: there are rules of kube-proxy in iptables-legacy and in iptables-nft",
        ] {
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}

netns_test! {
    /// Packets pass the tables of both makes, whichever the proxy's rules are in.
    fn rules_of_the_other_make_are_not_overlooked() {
        let services = format!("{RULESETS}/services.yaml");
        let audited = || audit(&["-f", &services], "").1;
        let explained = || {
            let (_, _, errors) = with_input(&["explain", "--from", "192.0.2.1", "--to", "10.96.1.5:80"], "");
            // the kernel says itself which addresses are the node's
            let (node_ip, errors) = errors.split_once('\n').unwrap();
            assert!(node_ip.starts_with("warning: --node-ip changes nothing here"), "{node_ip}");
            errors.to_string()
        };
        program("nft", &["-f", "-"], &with_input(&["render", "-f", &services], "").1);
        // tables that are there and empty do nothing
        program("iptables-legacy", &["-t", "filter", "-L"], "");
        assert!(audited().ends_with("findings: 0\n") && explained().is_empty(), "{}{}", audited(), explained());
        program("iptables-legacy", &["-A", "FORWARD", "-p", "tcp", "--dport", "80", "-j", "DROP"], "");
        let expected = "packets also pass 1 rule of iptables-legacy, which are not followed";
        assert!(audited().contains(&format!("not understood: {expected}")), "{}", audited());
        assert!(explained().contains(expected), "{}", explained());
        // with kube-proxy's rules in the one, those of the other are followed, too
        program("nft", &["flush", "ruleset"], "");
        program("iptables-nft-restore", &[], &sample(IPTABLES));
        let dropped = |said: &str| said.contains("diverted: ip filter FORWARD, rule 1: DROP; from ");
        assert!(dropped(&audited()), "{}", audited());
        program("nft", &["flush", "ruleset"], "");
        program("iptables-legacy", &["-F", "FORWARD"], "");
        program("iptables-legacy-restore", &[], &sample(IPTABLES));
        program("iptables-nft", &["-A", "FORWARD", "-p", "tcp", "--dport", "80", "-j", "DROP"], "");
        assert!(dropped(&audited()), "{}", audited());
    }
}

netns_test! {
    /// `iptables-nft-save` prints nothing but a comment of a table with rules that it does not know.
    fn tables_that_cannot_be_listed_are_not_taken_for_empty() {
        program("iptables-nft-restore", &[], &sample(IPTABLES));
        program("nft", &["add", "rule", "ip", "nat", "POSTROUTING", "meta", "mark", "set", "numgen", "random", "mod", "4"], "");
        let (status, said, errors) = audit(&[], "");
        assert_eq!(status, Some(1), "{said}{errors}");
        let expected = "not understood: iptables-save cannot list the table nat, which has rules that nft alone can list";
        assert_eq!(said.matches(expected).count(), 1, "{said}");
    }
}
