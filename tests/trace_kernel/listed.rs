//! What `nft` lists is traced as what the kernel holds.

use std::path::Path;

use svcmap::listing::{self, Listing};
use svcmap::netlink::{CodecKind, Connection};
use svcmap::trace::{Ruleset, trace};

use crate::common::cases::{Case, Look, Stack};
use crate::common::trace::{node, packet};
use crate::common::world::World;
use crate::support::{self, in_words, load};

/// What `nft` lists, as text and as JSON.
fn listings() -> [(&'static str, Listing); 2] {
    [("text", &["list", "ruleset"][..]), ("JSON", &["-j", "list", "ruleset"])].map(|(form, arguments)| {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let output = std::process::Command::new("nft").args(arguments).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        (form, listing::read(&text).unwrap_or_else(|error| panic!("{form}: {error}\n{text}")))
    })
}

netns_test! {
    fn svcmaps_rules_are_traced_from_their_listings_as_from_the_kernel() {
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let (mut flows_seen, mut wrong) = (0, String::new());
        // every third case: each lists the ruleset twice
        for case in Case::all().into_iter().step_by(3) {
            let Look::Flows(flows) = case.look(Stack::Dual) else { continue };
            let world = World::of(&case, Stack::Dual);
            for transaction in &world.transactions {
                connection.commit(transaction).unwrap();
            }
            for (form, listing) in listings() {
                assert!(listing.notes.is_empty(), "{}, {form}: {:?}", case.id, listing.notes);
                for flow in &flows {
                    flows_seen += 1;
                    let [held, listed] = [&world.ruleset, &listing.ruleset]
                        .map(|ruleset| in_words(trace(ruleset, &node(), &packet(flow))));
                    if held != listed {
                        wrong += &format!("{} {flow}, {form}\nheld   {held}\nlisted {listed}\n", case.id);
                    }
                }
            }
            for table in connection.tables().unwrap() {
                let delete = svcmap::netlink::model::Op::DeleteTable { family: table.family, name: table.name };
                connection.commit(&[delete]).unwrap();
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(flows_seen > 200, "only {flows_seen} connections were traced");
    }
}

netns_test! {
    fn rules_of_others_are_traced_from_their_listings_as_from_the_kernel() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign");
        let mut seen = 0;
        let mut wrong = String::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let held = load(&std::fs::read_to_string(&path).unwrap());
            for (form, listing) in listings() {
                for (from, to) in
                    [("10.0.0.2", "172.30.0.41:80"), ("192.168.0.2", "10.0.0.7:443"), ("192.0.2.1", "192.168.0.2:22")]
                {
                    seen += 1;
                    let [held, listed] = [&held, &listing.ruleset].map(|ruleset: &Ruleset| {
                        in_words(trace(ruleset, &support::node(), &support::tcp(from, to)))
                    });
                    // that a rule is not understood is said in other words
                    let both_refuse = held.starts_with("refused") && listed.starts_with("refused");
                    if held != listed && !both_refuse {
                        wrong += &format!("{} {form} {from} {to}\nheld   {held}\nlisted {listed}\n", path.display());
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(seen > 30, "only {seen} connections were traced");
    }
}
