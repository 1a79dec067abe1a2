//! What several commands read: manifests or a cluster, and for which node.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{Failure, warn};
use crate::amounts::counted;
use crate::config::{Effective, KubeProxyConfiguration, Mode, ProxyFlags, effective_in};
use crate::nftables::program::Rest;
use crate::plan::{NodePlan, PortPlan};
use crate::source::cluster::{Access, read};
use crate::source::{LeftAlone, display, load};
use crate::tracker::{Counts, Tracker};

/// The input of a command.
#[derive(Args, Debug)]
pub struct InputArgs {
    /// Manifests: a file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH", conflicts_with_all = ["kubeconfig", "master"])]
    pub files: Vec<PathBuf>,
    /// Take a problem in the input as a reason to stop, instead of leaving the object out
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub proxy: ProxyFlags,
}

/// What the input comes to.
pub struct Wanted {
    /// The node's part of the plan.
    pub node: NodePlan,
    /// All Service ports.
    pub ports: Vec<PortPlan>,
    /// What happens to Services that only the kernel knows.
    pub rest: Rest,
    /// How many objects there are.
    pub counts: Counts,
    /// Which Services are not proxied.
    pub left_alone: LeftAlone,
    /// What the plan was made by.
    pub tracker: Tracker,
    /// The configuration.
    pub configuration: KubeProxyConfiguration,
    /// In which form rules are made.
    pub mode: Mode,
}

/// Reads the configuration; what it asks for in vain in this mode is printed.
///
/// # Errors
/// What is wrong with it.
pub fn configuration(flags: &ProxyFlags, chosen: Option<Mode>) -> Result<Effective, Failure> {
    let effective = effective_in(flags, chosen).map_err(|error| Failure::Input(error.to_string()))?;
    effective.warnings.iter().for_each(warn);
    Ok(effective)
}

/// How the cluster is reached, for a command that got no manifests.
///
/// # Errors
/// No cluster is named, and this is no pod of one.
pub fn cluster(flags: &ProxyFlags, configuration: &KubeProxyConfiguration) -> Result<Access, Failure> {
    let connection = &configuration.client_connection;
    let access = Access {
        kubeconfig: (!connection.kubeconfig.is_empty()).then(|| connection.kubeconfig.clone().into()),
        masters: flags.master.clone(),
        qps: connection.qps,
        burst: connection.burst,
    };
    if access.is_given() {
        return Ok(access);
    }
    Err(Failure::Input(
        "no input: give manifests with -f PATH, or a cluster with --kubeconfig FILE or --master URL (a pod's service \
         account is found by itself, but KUBERNETES_SERVICE_HOST is not set here)"
            .into(),
    ))
}

/// Reads a text file, or standard input for `-`: without the mark that some editors begin files with, and with line ends
/// of one character.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let mut text = text.map_err(|error| Failure::Input(format!("{}: {error}", display(path))))?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(if text.contains('\r') { text.replace("\r\n", "\n") } else { text })
}

impl InputArgs {
    /// Whether manifests are given, or how the cluster is reached.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty() || self.proxy.kubeconfig.is_some() || !self.proxy.master.is_empty()
    }

    /// Reads the manifests, or the cluster, and plans them. Problems are printed.
    ///
    /// # Errors
    /// No input; nothing but files that cannot be read to their end; a cluster that cannot be read; with `--strict`, any
    /// problem.
    pub fn plan(&self) -> Result<Wanted, Failure> {
        self.plan_in(Some(Mode::Nftables))
    }

    /// The same for a command that has `--mode`, which chooses the mode where it is given.
    ///
    /// # Errors
    /// As for [`InputArgs::plan`].
    pub fn plan_in(&self, chosen: Option<Mode>) -> Result<Wanted, Failure> {
        let effective = configuration(&self.proxy, chosen)?;
        let loaded = if self.files.is_empty() {
            let access = cluster(&self.proxy, &effective.configuration)?;
            read(&access, &effective.proxy.node_name).map_err(|error| Failure::Input(error.to_string()))?
        } else {
            load(&self.files).map_err(|error| Failure::Input(error.to_string()))?
        };
        loaded.problems.iter().for_each(warn);
        let nothing = loaded.snapshot.services.is_empty() && loaded.snapshot.slices.is_empty();
        if let Some(file) = loaded.broken.first().filter(|_| nothing) {
            return Err(Failure::Input(format!("{}: cannot be used, so nothing was done", display(file))));
        }
        if loaded.snapshot.services.is_empty() && loaded.broken.is_empty() {
            warn("there is no Service in the input, so that nothing is to be served");
        }
        let rest = if loaded.broken.is_empty() { Rest::Delete } else { Rest::Keep };
        if rest == Rest::Keep {
            warn("a part of the input could not be read, so Services that it does not name are not removed");
        }
        let mut problems = loaded.problems.len();
        let mut tracker = Tracker::new(effective.proxy);
        let left_alone = loaded.snapshot.left_alone();
        tracker.replace(loaded.snapshot);
        let counts = tracker.counts();
        let (change, warnings) = tracker.take();
        warnings.iter().for_each(warn);
        problems += warnings.iter().filter(|warning| warning.is_about_a_service()).count();
        if self.strict && problems > 0 {
            return Err(Failure::Input(format!(
                "{} in the input, and --strict was given",
                counted(problems, "problem")
            )));
        }
        let node = change.node.unwrap_or_default();
        let configuration = effective.configuration;
        let mode = effective.mode;
        Ok(Wanted { node, ports: change.changed, rest, counts, left_alone, tracker, configuration, mode })
    }
}
