//! A large list leaves no mark: nothing of it is held in parsed form, whether it is streamed or comes in pages.

use std::process::Command;
use std::sync::mpsc::channel;

use svcmap::events::recorder;
use svcmap::source::Change;
use svcmap::source::cluster::{Access, Message, follow};

use crate::fake::{Fake, Manner, SLICES};
use crate::model::slice;

const CHILD: &str = "SVCMAP_CLUSTER_MEMORY";
const MARK: &str = "peak: ";
const SLICE_COUNT: usize = 1000;
/// The program itself with its threads, and one page as text and as bytes: 200 slices of 25 KiB.
const BUDGET: usize = 48 << 20;

/// Follows the cluster, keeps nothing of what it says, and returns the most memory that was ever resident.
fn peak(url: &str) -> usize {
    let (sender, messages) = channel();
    let access = Access { kubeconfig: None, masters: vec![url.into()], qps: -1.0, burst: 10 };
    let mut endpoints = 0;
    let cluster = follow(access, "n1", recorder().1, move |message| match message {
        Message::Change(Change::Slice(slice), _) => endpoints += slice.endpoints.len(),
        Message::Listed => sender.send(endpoints).unwrap(),
        Message::Change(..) => {}
    })
    .unwrap();
    assert_eq!(messages.recv().unwrap(), 100 * SLICE_COUNT);
    drop(cluster);
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.split_whitespace().next().expect("a number").parse::<usize>().expect("a number") * 1024
}

#[test]
fn a_list_of_many_endpoints_takes_little_memory() {
    if let Ok(url) = std::env::var(CHILD) {
        println!("\n{MARK}{}", peak(&url));
        return;
    }
    for streams in [true, false] {
        let server = Fake::start(Manner { streams, ..Manner::default() });
        (0..SLICE_COUNT).for_each(|n| server.put(SLICES, slice(&format!("s{n}"), "s", 100)));
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "memory::a_list_of_many_endpoints_takes_little_memory", "--nocapture"])
            .env(CHILD, server.url())
            .output()
            .expect("this program again");
        let output = String::from_utf8_lossy(&child.stdout).into_owned();
        let peak = output.lines().find_map(|line| line.split_once(MARK)?.1.parse::<usize>().ok());
        let peak = peak.unwrap_or_else(|| panic!("{output}\n{}", String::from_utf8_lossy(&child.stderr)));
        println!("{SLICE_COUNT} slices of 100 endpoints, streamed {streams}: {} KiB at most", peak >> 10);
        assert!(peak < BUDGET, "streamed {streams}: {peak} bytes");
        assert!(peak > 4 << 20, "{peak} bytes cannot be: the measurement is broken");
    }
}
