//! `svcmap top`: what it shows is what was counted.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use svcmap::config::ProxyConfig;
use svcmap::lab::Lab;
use svcmap::objects::{Family, Protocol};

use crate::common::cases::{NodeSettings, Stack, address};
use crate::common::fixture;
use crate::scene::{PATIENCE, Scene, ask, target};
use crate::trial;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("top::once_prints_what_was_counted", || fixture::in_a_lab(once)),
        trial("top::what_is_missing_is_said", || fixture::in_a_lab(missing)),
        trial("top::the_screen_is_live", || fixture::in_a_lab(live)),
    ]
}

const SERVICE: &str = "service svc port=http:80@3001 vip=5.6.7.8";

fn scene(lab: &mut Lab, counters: bool) -> Result<Scene<'_>> {
    let mut scene = Scene::new(lab, Stack::Dual, "L1 L2 R3", &["203.0.113.2"])?;
    scene.restart_with(ProxyConfig { counters, ..NodeSettings::default().config(Stack::Dual) })?;
    Ok(scene)
}

fn connect(scene: &Scene, family: Family, to: &str, port: u16, times: usize) -> Result<()> {
    for _ in 0..times {
        ask(scene.lab, address("203.0.113.2", family), Protocol::Tcp, target(to, port, family))?;
    }
    Ok(())
}

fn top(lab: &Lab, arguments: &[&str]) -> Result<Output> {
    let program = env!("CARGO_BIN_EXE_svcmap");
    Ok(lab.node().run(|| Command::new(program).arg("top").args(arguments).output())?)
}

fn once(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab, true)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    let objects = [SERVICE, "slice svc port=http:8080 L1 L2 R3", "service idle ip=172.30.0.42", "slice idle"];
    scene.sync(&objects)?;
    connect(&scene, Family::V4, "5.6.7.8", 80, 3)?;
    connect(&scene, Family::V4, "192.168.0.2", 3001, 4)?;
    connect(&scene, Family::V6, "5.6.7.8", 80, 5)?;
    let output = top(scene.lab, &["--once", "--interval", "0s", "-o", "json"])?;
    ensure!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let seen: Value = serde_json::from_slice(&output.stdout)?;
    let row = |service: &str, frontends: usize, endpoints: usize, connections: u64| {
        json!({
            "service": service, "protocol": "tcp", "frontends": frontends,
            "endpoints": {"ipv4": endpoints, "ipv6": endpoints},
            "connections_per_second": null, "connections": connections, "changed_seconds_ago": null,
        })
    };
    let wanted = json!({"services": [row("ns/idle", 2, 0, 0), row("ns/svc:http", 6, 3, 12)], "counters": true});
    ensure!(seen == wanted, "expected {wanted}\nseen {seen}");

    let arguments = ["--once", "--interval", "700ms", "--sort", "total"];
    let output = thread::scope(|scope| {
        let printing = scope.spawn(|| top(scene.lab, &arguments));
        // the first reading is over by then, or the connections are in it: the rate is looked at where it is not
        thread::sleep(Duration::from_millis(300));
        connect(&scene, Family::V4, "5.6.7.8", 80, 7)?;
        printing.join().expect("it does not panic")
    })?;
    let text = String::from_utf8(output.stdout)?;
    let cells: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(cells[0] == ["SERVICE", "PROTO", "FRONTENDS", "ENDPOINTS", "CONN/S", "TOTAL"], "{text}");
    ensure!(cells[1][..4] == ["ns/svc:http", "tcp", "6", "3"] && cells[1][5] == "19", "{text}");
    ensure!(cells[1][4].parse::<f64>()? <= 10.0, "of 7 connections in 0.7 s: {text}");
    ensure!(cells[2] == ["ns/idle", "tcp", "2", "0", "0.0", "0"], "{text}");
    Ok(())
}

fn missing(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab, false)?;
    let told = |output: &Output, what: &str| {
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && errors.contains(what), "expected {what:?}, seen {output:?}");
        Ok(())
    };
    told(&top(scene.lab, &["--once", "--interval", "0s"])?, "no table of this version")?;
    scene.sync(&[SERVICE, "slice svc port=http:8080 L1 L2 R3"])?;
    let output = top(scene.lab, &["--once", "--interval", "0s"])?;
    told(&output, "give svcmap run or apply --counters")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.lines().any(|l| l.split_whitespace().eq(["ns/svc:http", "tcp", "6", "3", "-", "-"])), "{text}");
    let output = top(scene.lab, &[])?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && errors.contains("--once"), "without a terminal: {output:?}");
    Ok(())
}

/// On a terminal of its own, as `script` makes one.
fn live(lab: &mut Lab) -> Result<()> {
    let mut scene = scene(lab, true)?;
    let _servers = scene.serve(Protocol::Tcp, 8080)?;
    scene.sync(&[SERVICE, "slice svc port=http:8080 L1 L2 R3"])?;
    let command = format!("stty rows 20 cols 90; exec {} top --interval 100ms", env!("CARGO_BIN_EXE_svcmap"));
    let mut child = scene.lab.node().run(|| {
        Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("script of util-linux is needed")
    })?;
    let (mut output, mut input) = (child.stdout.take().expect("a pipe"), child.stdin.take().expect("a pipe"));
    let (sender, pieces) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            let _ = sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    });
    let mut shown = String::new();
    let wait_for = |what: &str, shown: &mut String| {
        let until = Instant::now() + PATIENCE;
        while !shown.contains(what) {
            let left = until.saturating_duration_since(Instant::now());
            let piece = pieces.recv_timeout(left).with_context(|| format!("no {what:?} on the screen: {shown:?}"))?;
            shown.push_str(&piece);
        }
        Ok::<(), anyhow::Error>(())
    };
    let result = (|| {
        wait_for("ns/svc:http", &mut shown)?;
        wait_for("q quit", &mut shown)?;
        shown.clear();
        // only what changes is drawn again: a total with digits that were not there
        connect(&scene, Family::V4, "5.6.7.8", 80, 13)?;
        wait_for("13", &mut shown)?;
        scene.sync(&[SERVICE, "slice svc port=http:8080 L1"])?;
        shown.clear();
        wait_for("0s", &mut shown)?;
        input.write_all(b"q")?;
        input.flush()?;
        Ok(())
    })();
    if result.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    result.and_then(|()| {
        ensure!(status.success(), "q ended it with {status}");
        Ok(())
    })
}
