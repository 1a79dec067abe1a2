//! Another program that has svcmap's tables.

use svcmap::netlink::model::{NfFamily, Op, Table};
use svcmap::netlink::{CodecKind, Connection};

/// Takes the place of the node's tables, so that nobody else can program them until the connection goes away.
pub fn usurp() -> Connection {
    const OWNER: u32 = 2;
    let mut connection = Connection::open(CodecKind::Native).unwrap();
    let ops = [NfFamily::IPV4, NfFamily::IPV6].into_iter().flat_map(|family| {
        let table = Table { family, name: "svcmap".into(), flags: OWNER, comment: None };
        [Op::DeleteTable { family, name: "svcmap".into() }, Op::AddTable(table)]
    });
    connection.commit(&ops.collect::<Vec<_>>()).unwrap();
    connection
}
