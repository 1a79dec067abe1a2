//! What happens in clusters.

use std::net::TcpListener;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::common::api_server::ApiServer;
use crate::daemon::{Daemon, ask, count, listing, serve, wait_for};
use crate::objects::Objects;

const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";

/// Created, scaled, handed to another proxy and back, deleted: each shows in the kernel, and in who answers.
pub fn a_service_lives_and_dies(server: &mut ApiServer) -> Result<()> {
    ["10.244.1.1", "10.244.1.2", "10.244.1.3"].into_iter().try_for_each(serve)?;
    let (objects, daemon) = (Objects::of(server)?, Daemon::start(server)?);

    let ip = objects.create_service("web")?;
    let took = wait_for("a Service without endpoints", |text| text.contains(&format!("{ip} . tcp . 80 comment")))?;
    println!("a Service: in the kernel {took:?} after the API server's answer");
    ensure!(ask(&ip).is_err(), "a Service without endpoints answers");

    objects.create_slice("web", &["10.244.1.1"])?;
    let took = wait_for("its endpoint", |text| text.contains("10.244.1.1 . 8080"))?;
    println!("an endpoint: in the kernel {took:?} after the API server's answer");
    ensure!(ask(&ip)? == "10.244.1.1");

    objects.change_slice("web", &["10.244.1.1", "10.244.1.2", "10.244.1.3"])?;
    wait_for("three endpoints", |text| text.contains("10.244.1.3 . 8080"))?;
    objects.change_slice("web", &["10.244.1.2"])?;
    wait_for("one endpoint", |text| !text.contains("10.244.1.1 . 8080") && !text.contains("10.244.1.3 . 8080"))?;
    ensure!(ask(&ip)? == "10.244.1.2");

    objects.label_service("web", OTHER_PROXY, Some("other"))?;
    wait_for("nothing of a Service of another proxy", |text| count(text, "default/web") == 0)?;
    objects.label_service("web", OTHER_PROXY, None)?;
    wait_for("the Service again", |text| count(text, "default/web") == 1)?;
    ensure!(ask(&ip)? == "10.244.1.2");

    objects.delete_service("web")?;
    wait_for("nothing of what was deleted", |text| !text.contains("default/web"))?;
    let latencies: Vec<String> =
        daemon.log().split("latency_ms=").skip(1).map(|rest| first_word(rest).into()).collect();
    println!("from changes of endpoints to their commits, in milliseconds: {}", latencies.join(", "));
    ensure!(latencies.len() == 3, "a slice changed three times: {latencies:?}");
    Ok(())
}

/// Of the start, and of a port that somebody else has (rows I8, J15): the API server takes them.
pub fn events_are_written(server: &mut ApiServer) -> Result<()> {
    let taken = TcpListener::bind("0.0.0.0:30999")?;
    let (objects, _daemon) = (Objects::of(server)?, Daemon::start(server)?);
    objects.create_checked_service("checked", 30999)?;
    let wanted = ["Node/n1 Starting", "Service/checked FailedToStartServiceHealthcheck"];
    let mut seen = Vec::new();
    for _ in 0..600 {
        seen = objects.events()?;
        if wanted.iter().all(|event| seen.iter().any(|line| line == event)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(taken);
    let ours = |line: &&String| line.contains("n1") || line.contains("checked");
    let mut ours: Vec<&String> = seen.iter().filter(ours).collect();
    ours.sort();
    ensure!(ours == wanted, "the Events are {seen:?}");
    Ok(())
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

pub fn two_thousand_services_at_once(server: &mut ApiServer) -> Result<()> {
    let (objects, daemon) = (Objects::of(server)?, Daemon::start(server)?);
    let names: Vec<String> = (0..2000).map(|n| format!("many-{n}")).collect();
    let started = Instant::now();
    objects.create_many(&names)?;
    println!("2,000 Services with their slices: created in {:?}", started.elapsed());
    let all_there =
        |text: &str| count(text, "default/many-") == 2000 && text.matches("10.244.1.2 . 8080").count() == 2000;
    let took = wait_for("all of them", all_there)?;
    println!(
        "all in the kernel {took:?} after the last was created, in {} syncs",
        daemon.log().matches(" synced").count()
    );

    drop(daemon); // with its rules
    let started = Instant::now();
    let daemon = Daemon::start(server)?;
    println!("a daemon that starts has them {:?} later", started.elapsed());
    ensure!(all_there(&listing()?), "it synced before it knew all");
    ensure!(daemon.log().matches(" synced").count() == 1, "nothing is programmed before all is listed");
    Ok(())
}

/// Rules stay while the API server is away, and what changes afterwards is seen although it has forgotten the past.
pub fn the_api_server_is_killed(server: &mut ApiServer) -> Result<()> {
    serve("10.244.1.4")?;
    let mut daemon = Daemon::start(server)?;
    let objects = Objects::of(server)?;
    let ip = objects.create_service("stays")?;
    objects.create_slice("stays", &["10.244.1.4"])?;
    objects.create_service("goes")?;
    wait_for("both", |text| text.contains("10.244.1.4 . 8080") && text.contains("default/goes"))?;

    server.kill();
    daemon.wait_for_log("does not answer")?;
    ensure!(ask(&ip)? == "10.244.1.4");
    daemon.signal("STOP")?; // it sees nothing of what happens at first
    server.restart()?;
    let objects = Objects::of(server)?;
    objects.delete_service("goes")?;
    objects.create_service("new")?;
    let meanwhile = listing()?;
    ensure!(meanwhile.contains("default/goes") && !meanwhile.contains("default/new"), "nobody could know of anything");
    daemon.signal("CONT")?;
    wait_for("the changes", |text| text.contains("default/new") && !text.contains("default/goes"))?;
    ensure!(ask(&ip)? == "10.244.1.4");
    let log = daemon.log();
    ensure!(log.matches("does not answer").count() == 1, "once is enough:\n{log}");
    daemon.wait_for_log(" answers, after")
}

pub fn the_history_is_compacted(server: &mut ApiServer) -> Result<()> {
    let mut daemon = Daemon::start(server)?;
    let objects = Objects::of(server)?;
    ["stays", "goes"].into_iter().try_for_each(|name| objects.create_service(name).map(drop))?;
    wait_for("both", |text| text.contains("default/stays") && text.contains("default/goes"))?;
    daemon.signal("STOP")?;
    server.restart()?;
    let objects = Objects::of(server)?;
    objects.delete_service("goes")?;
    (0..20).try_for_each(|n| objects.create_service(&format!("new-{n}")).map(drop))?;
    server.compact()?;
    daemon.signal("CONT")?;
    let new = |text: &str| text.matches("comment \"default/new-").count();
    wait_for("what is there", |text| new(text) == 20 && !text.contains("default/goes"))?;
    ensure!(listing()?.contains("default/stays"));
    daemon.wait_for_log("Services are listed again: the resource version has expired")
}
