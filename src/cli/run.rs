//! `svcmap run`: the daemon.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::mpsc::UnboundedReceiver;
use tracing_subscriber::EnvFilter;

use super::cleanup::{remove_all, remove_tables};
use super::input::cluster;
use super::mode::{Programmed, is_in_the_layout_of_kube_proxy, open};
use super::output::{Failure, warn};
use super::reload::{Reload, start_anew};
use crate::config::{Effective, KubeProxyConfiguration, Logging, Mode, ProxyFlags, effective_in};
use crate::conntrack::Cleaner;
use crate::events;
use crate::leftovers::{self, Report};
use crate::netlink::CodecKind;
use crate::serve;
use crate::source::cluster::{Access, Asked, Cluster, follow_observed};
use crate::source::{Watch, watch};
use crate::sync::{Event, Periods, Runner};
use crate::sysctl;
use crate::tracker::Tracker;

/// Arguments of `run`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Manifests to follow: a file, a directory, or - for standard input, which is read once (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH", conflicts_with_all = ["kubeconfig", "master"])]
    files: Vec<std::path::PathBuf>,
    /// Set what has to be set on the host, and end: connection tracking's limits and times
    #[arg(long)]
    init_only: bool,
    /// Remove all rules of svcmap's and of kube-proxy's, in any mode, and end
    #[arg(long, conflicts_with = "init_only")]
    cleanup: bool,
    /// Remove what kube-proxy left, in any mode, once svcmap's own rules are in force (default: with a cluster, but not
    /// with -f)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    remove_kube_proxy: Option<bool>,
    /// Write the effective configuration to this file, and end
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
    /// With --counters: how many Service ports have a metric of their own of new connections; those of the others are told
    /// together
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    metrics_services: usize,
    /// How log lines look (default: text, unless the configuration says json)
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// What is logged: a level, or levels by module (default: info, or as kube-proxy's -v says)
    #[arg(long, value_name = "FILTER", env = "SVCMAP_LOG")]
    log: Option<String>,
    /// What writes the netlink messages: native, or libnftnl where it was built in
    #[arg(long, value_name = "CODEC", default_value_t)]
    codec: CodecKind,
    #[command(flatten)]
    mode: Programmed,
    #[command(flatten)]
    proxy: ProxyFlags,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs the command until SIGTERM, SIGINT or SIGHUP. What is programmed stays. Every failure has status 1 here.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    daemon(args).map_err(|failure| match failure {
        Failure::Input(text) => Failure::Fatal(text),
        Failure::Output(error) => Failure::Fatal(error.to_string()),
        other => other,
    })
}

fn daemon(args: &Args) -> Result<ExitCode, Failure> {
    if args.cleanup {
        return remove_all();
    }
    let effective = effective_in(&args.proxy, args.mode.mode).map_err(|error| Failure::Input(error.to_string()))?;
    let Effective { configuration, mode, proxy, healthz, metrics, warnings } = effective;
    if let Some(path) = &args.write_config_to {
        warnings.iter().for_each(warn);
        return write(path, &configuration.to_yaml());
    }
    start_log(args, &configuration.logging)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    if args.remove_kube_proxy == Some(true) && is_in_the_layout_of_kube_proxy(mode) {
        return Err(Failure::Input(
            "--remove-kube-proxy: in this mode svcmap's own rules have the names of kube-proxy's, which would go with them"
                .into(),
        ));
    }
    // row J13
    if args.init_only {
        set_up_host(&configuration);
        return Ok(ExitCode::SUCCESS);
    }
    let (recorder, told) = events::recorder();
    recorder.record(events::Event::starting());
    let periods = Periods::of(&configuration.nftables);
    let node = proxy.node_name.clone();
    let access = args.files.is_empty().then(|| cluster(&args.proxy, &configuration)).transpose()?;
    let mut programmer = open(mode, args.codec, &configuration)?;
    programmer.check()?;
    let (observer, audience) = serve::observer();
    let cleaner = Cleaner::start_observed(observer.of_sweeps()).map_err(Failure::Connect)?;
    let (sender, events) = channel();
    stop_on_signals(sender.clone())?;
    let reload = Reload::default();
    // standard input cannot be read twice: there, a change waits for the next start
    if args.files.iter().all(|path| path.as_os_str() != "-") {
        reload.watch(&args.proxy, args.mode.mode, &configuration, sender.clone())?;
    }
    let asked = sender.clone();
    let ask = serve::Ask::new(move |question| asked.send(Event::Question(question)).is_ok());
    let guard = sender.clone();
    let _cluster = follow_input(args, access, &node, told, sender, observer.of_requests())?;
    // not before connection tracking is there, which the cleaner sees to
    set_up_host(&configuration);
    let counted = proxy.counters.then_some(args.metrics_services);
    let hard_fail = configuration.bind_address_hard_fail;
    serve::start(
        serve::Settings { healthz, metrics, hard_fail, node, configuration, counted, recorder },
        audience,
        ask,
    )?;
    let mut runner =
        Runner::new(Tracker::new(proxy), programmer, cleaner, periods).observed_by(observer).guarded_by(guard);
    let removes_kube_proxys = args.remove_kube_proxy.unwrap_or(args.files.is_empty());
    runner = runner.when_synced(take_over(mode, removes_kube_proxys)?);
    runner.run(&events);
    if reload.is_due() {
        match start_anew()? {}
    }
    tracing::info!("{}", farewell(mode));
    Ok(ExitCode::SUCCESS)
}

/// What becomes of the rules when the process ends.
fn farewell(mode: Mode) -> &'static str {
    match mode {
        Mode::Userspace => "stopped; the rules stay, and lead to nobody until svcmap runs again or cleans up",
        Mode::Nftables | Mode::Iptables | Mode::Ipvs => "stopped; what is programmed stays",
    }
}

fn write(path: &Path, text: &str) -> Result<ExitCode, Failure> {
    std::fs::write(path, text).map_err(|error| Failure::Fatal(format!("{}: {error}", path.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// Has the loop told what the cluster or the manifests say. Without a cluster, nobody reads the Events.
fn follow_input(
    args: &Args,
    access: Option<Access>,
    node: &str,
    told: UnboundedReceiver<events::Event>,
    sender: Sender<Event>,
    asked: impl FnMut(Asked) + Send + 'static,
) -> Result<Option<Cluster>, Failure> {
    if let Some(access) = access {
        // the other end is gone only when the process is about to end
        let tell = move |message| drop(sender.send(Event::Cluster(message)));
        let cluster = follow_observed(access, node, told, tell, asked);
        return cluster.map(Some).map_err(|error| Failure::Input(error.to_string()));
    }
    let watch = watch(args.files.clone()).map_err(|error| Failure::Input(error.to_string()))?;
    std::thread::Builder::new().name("forward".into()).spawn(move || forward(&watch, &sender))?;
    Ok(None)
}

/// What the host refuses is said; the daemon does its work all the same (behaviour rows H10, J14).
fn set_up_host(configuration: &KubeProxyConfiguration) {
    let settings = sysctl::settings(configuration, sysctl::processors());
    sysctl::apply(&settings, Path::new("/")).iter().for_each(|trouble| tracing::warn!("{trouble}"));
}

/// Starts a thread that removes what svcmap left in other modes, and what kube-proxy left where that is asked for, as soon as it is
/// told that the rules of this mode are in force, so that there is no moment without rules (behaviour row J12). That takes as
/// long as it takes: programming goes on meanwhile.
fn take_over(mode: Mode, from_kube_proxy: bool) -> std::io::Result<Sender<()>> {
    let (synced, wait) = channel();
    std::thread::Builder::new().name("leftovers".into()).spawn(move || {
        if wait.recv().is_ok() {
            remove_other_modes(mode);
            if from_kube_proxy {
                remove_what_kube_proxy_left(mode);
            }
        }
    })?;
    Ok(synced)
}

fn remove_other_modes(mode: Mode) {
    let others: Vec<Mode> = [Mode::Nftables, Mode::Userspace].into_iter().filter(|other| *other != mode).collect();
    match remove_tables(&others) {
        Ok(removed) => removed.iter().for_each(|what| tracing::info!("removed what another mode left: {what}")),
        Err(trouble) => tracing::warn!("of what another mode may have left, something stays: {trouble}"),
    }
}

fn remove_what_kube_proxy_left(mode: Mode) {
    let in_its_layout = is_in_the_layout_of_kube_proxy(mode);
    let Report { removed, troubles } = if in_its_layout { leftovers::remove_nftables() } else { leftovers::remove() };
    removed.iter().for_each(|what| tracing::info!("removed what kube-proxy left: {what}"));
    troubles.iter().for_each(|trouble| tracing::warn!("of what kube-proxy may have left, something stays: {trouble}"));
}

fn forward(watch: &Watch, sender: &Sender<Event>) {
    for loaded in watch.updates() {
        if sender.send(Event::Manifests(loaded)).is_err() {
            return;
        }
    }
}

/// Whoever closes a terminal ends what runs in it, but for what was started to outlive it, as `nohup` does. Nothing is read
/// again because of SIGHUP: files are followed anyway.
fn stop_on_signals(sender: Sender<Event>) -> std::io::Result<()> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT].into_iter().chain(hangup))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if sender.send(Event::Stop).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Whether the process was started so that it does not mind this signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The level that kube-proxy's `-v` comes to: up to 3 is for operators, 4 and 5 for those who look for something.
fn level(verbosity: i32) -> &'static str {
    match verbosity {
        ..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

fn start_log(args: &Args, logging: &Logging) -> Result<(), Failure> {
    // these would report each failed attempt as an error; what becomes of them is reported by the cluster source
    let wanted = args.log.as_deref().unwrap_or_else(|| level(logging.verbosity));
    let directives = format!("kube_client=off,rustls_platform_verifier=off,{wanted}");
    let filter = EnvFilter::try_new(directives).map_err(|error| Failure::Input(format!("--log {wanted}: {error}")))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let format = if logging.format == "json" { LogFormat::Json } else { LogFormat::Text };
    match args.log_format.unwrap_or(format) {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
