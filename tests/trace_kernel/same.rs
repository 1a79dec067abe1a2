//! What is read back from the kernel is traced as what was sent to it.

use svcmap::netlink::{CodecKind, Connection};
use svcmap::trace::{Ruleset, Trace, trace};

use crate::common::cases::{Case, Look, Stack};
use crate::common::trace::{node, packet};
use crate::common::world::World;

netns_test! {
    fn rules_read_back_are_traced_as_those_in_memory() {
        let mut connection = Connection::open(CodecKind::Native).unwrap();
        let (mut flows_seen, mut wrong) = (0, String::new());
        for case in Case::all() {
            let Look::Flows(flows) = case.look(Stack::Dual) else { continue };
            let world = World::of(&case, Stack::Dual);
            for transaction in &world.transactions {
                connection.commit(transaction).unwrap();
            }
            let read = Ruleset::read(&mut connection).unwrap();
            for flow in flows {
                flows_seen += 1;
                let [sent, read] = [&world.ruleset, &read].map(|ruleset| trace(ruleset, &node(), &packet(&flow)));
                let [sent, read] = [sent, read].map(|traced| traced.map(|trace| in_words(&trace)).unwrap_or_else(|r| r.to_string()));
                if sent != read {
                    wrong += &format!("{} {flow}\nsent {sent}\nread {read}\n", case.id);
                }
            }
            for table in connection.tables().unwrap() {
                let delete = svcmap::netlink::model::Op::DeleteTable { family: table.family, name: table.name };
                connection.commit(&[delete]).unwrap();
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(flows_seen > 400, "only {flows_seen} connections were traced");
    }
}

/// The ways in words, without the kernel's handles.
fn in_words(trace: &Trace) -> String {
    let mut words = String::new();
    for way in &trace.ways {
        words += &format!("{} {}\n", way.share, way.outcome);
        for step in &way.steps {
            let place = &step.place;
            let position = place.rule.map_or(0, |rule| rule.position);
            words += &format!("  {} {} {} {position} {}\n", step.hook, place.table, place.chain, step.event);
        }
    }
    words
}
