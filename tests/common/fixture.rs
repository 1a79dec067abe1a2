//! Labs with the cases' node and client pod. Building one takes longer than most cases, so they are used again.

use std::net::IpAddr;
use std::sync::Mutex;

use anyhow::Result;
use svcmap::lab::Lab;
use svcmap::objects::Family;

use super::cases::{NODE_IPS, address};

static IDLE: Mutex<Vec<Lab>> = Mutex::new(Vec::new());

/// Runs `test` in a lab with the node `n1` and the pod `P`, which is behind the node's interface `pod0`. A lab in which
/// a test failed is not used again.
pub fn in_a_lab(test: impl FnOnce(&mut Lab) -> Result<()>) -> Result<()> {
    let idle = || IDLE.lock().expect("nothing panics with it");
    let used = idle().pop();
    let mut lab = used.map_or_else(build, Ok)?;
    test(&mut lab)?;
    idle().push(lab);
    Ok(())
}

fn build() -> Result<Lab> {
    let both = |text: &str| Family::BOTH.map(|family| address(text, family));
    let node: Vec<IpAddr> = NODE_IPS.iter().flat_map(|ip| both(ip)).collect();
    let mut lab = Lab::new(&node)?;
    lab.add_pod("P", &both("10.0.0.2"))?;
    Ok(lab)
}
