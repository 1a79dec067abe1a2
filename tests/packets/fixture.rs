//! Labs with the cases' node and client pod. Building one takes longer than most cases, so they are used again.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

use anyhow::Result;
use svcmap::lab::Lab;
use svcmap::objects::Family;

use crate::common::cases::{NODE_IPS, address};

static IDLE: Mutex<Vec<Lab>> = Mutex::new(Vec::new());

/// A lab that nobody else uses meanwhile.
pub struct Borrowed(Option<Lab>);

/// A lab with the node `n1` and the pod `P`, which is behind the node's interface `pod0`.
pub fn lab() -> Result<Borrowed> {
    let idle = IDLE.lock().expect("no test panics with it").pop();
    Ok(Borrowed(Some(idle.map_or_else(build, Ok)?)))
}

fn build() -> Result<Lab> {
    let both = |text: &str| Family::BOTH.map(|family| address(text, family));
    let node: Vec<IpAddr> = NODE_IPS.iter().flat_map(|ip| both(ip)).collect();
    let mut lab = Lab::new(&node)?;
    lab.add_pod("P", &both("10.0.0.2"))?;
    Ok(lab)
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let (Some(lab), Ok(mut idle)) = (self.0.take(), IDLE.lock()) {
            idle.push(lab);
        }
    }
}

impl Deref for Borrowed {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        self.0.as_ref().expect("taken only when dropped")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Lab {
        self.0.as_mut().expect("taken only when dropped")
    }
}
