//! A configuration file that changes (behaviour row J11).
//!
//! kube-proxy ends when its file changes, and counts on being started again with whatever is there then. svcmap looks first
//! whether that is a configuration, and then starts itself anew in its place: same process, same arguments. The rules stay, and
//! are adopted as after any start.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use super::output::Failure;
use crate::config::{KubeProxyConfiguration, Mode, ProxyFlags, changed_fields, effective_in};
use crate::source::on_change;
use crate::sync::Event;

/// Whether the daemon is to begin anew when its loop has come to an end.
#[derive(Clone, Debug, Default)]
pub struct Reload(Arc<AtomicBool>);

impl Reload {
    /// Watches the file of `--config`, if there is one, and ends the loop once it holds another configuration that is good.
    ///
    /// # Errors
    /// The file cannot be watched.
    pub fn watch(
        &self,
        flags: &ProxyFlags,
        chosen: Option<Mode>,
        current: &KubeProxyConfiguration,
        end: Sender<Event>,
    ) -> std::io::Result<()> {
        let Some(file) = flags.config.clone() else { return Ok(()) };
        let (flags, current, is_due) = (flags.clone(), current.clone(), self.0.clone());
        let mut complaint = String::new();
        on_change(file, move || match effective_in(&flags, chosen) {
            Ok(new) if new.configuration == current => complaint.clear(),
            Ok(new) => {
                let fields = changed_fields(&new.configuration, &current).join(", ");
                tracing::info!("the configuration has changed ({fields}): starting anew with it");
                is_due.store(true, Ordering::Relaxed);
                // where nobody listens the end is near anyway
                let _ = end.send(Event::Stop);
            }
            Err(error) => {
                let text = error.to_string();
                if text != complaint {
                    tracing::error!(
                        "the configuration has changed, and cannot be used; the former one holds on: {text}"
                    );
                    complaint = text;
                }
            }
        })
    }

    /// Whether there is another configuration.
    pub fn is_due(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Becomes a new process of the same program with the same arguments.
///
/// # Errors
/// The program cannot be started.
pub fn start_anew() -> Result<Infallible, Failure> {
    let itself = PathBuf::from("/proc/self/exe");
    // by its name, where that still leads to it, so that it is listed under that
    let program = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or(itself);
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    let error = Command::new(program).arg0(name).args(arguments).exec();
    Err(Failure::Fatal(format!("the program cannot be started anew: {error}")))
}
