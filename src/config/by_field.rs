//! The flags of kube-proxy that are another way to write a field of its configuration: a table.
//!
//! They are not in the help: whoever writes a command line anew does without them. What the fields mean here is told by
//! [`super::fields`].

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde_json::{Map, Value, json};

use super::file::KubeProxyConfiguration;
use super::flags::switch;

/// A flag, and the path of its field.
struct Flag {
    name: &'static str,
    /// A letter that stands for it.
    short: Option<char>,
    field: &'static str,
}

const fn flag(name: &'static str, field: &'static str) -> Flag {
    Flag { name, short: None, field }
}

/// All of them. Those about periods of the mode iptables are about nftables as well, in kube-proxy, too.
const FLAGS: [Flag; 27] = [
    flag("bind-address", "bindAddress"),
    flag("config-sync-period", "configSyncPeriod"),
    flag("feature-gates", "featureGates"),
    flag("iptables-masquerade-bit", "iptables.masqueradeBit"),
    flag("iptables-min-sync-period", "nftables.minSyncPeriod"),
    flag("iptables-sync-period", "nftables.syncPeriod"),
    flag("ipvs-exclude-cidrs", "ipvs.excludeCIDRs"),
    flag("ipvs-min-sync-period", "ipvs.minSyncPeriod"),
    flag("ipvs-scheduler", "ipvs.scheduler"),
    flag("ipvs-strict-arp", "ipvs.strictARP"),
    flag("ipvs-sync-period", "ipvs.syncPeriod"),
    flag("ipvs-tcp-timeout", "ipvs.tcpTimeout"),
    flag("ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout"),
    flag("ipvs-udp-timeout", "ipvs.udpTimeout"),
    flag("kube-api-content-type", "clientConnection.contentType"),
    flag("log-flush-frequency", "logging.flushFrequency"),
    flag("log-json-info-buffer-size", "logging.options.json.infoBufferSize"),
    flag("log-json-split-stream", "logging.options.json.splitStream"),
    flag("log-text-info-buffer-size", "logging.options.text.infoBufferSize"),
    flag("log-text-split-stream", "logging.options.text.splitStream"),
    flag("logging-format", "logging.format"),
    flag("profiling", "enableProfiling"),
    flag("proxy-mode", "mode"),
    flag("proxy-port-range", "portRange"),
    flag("show-hidden-metrics-for-version", "showHiddenMetricsForVersion"),
    Flag { name: "v", short: Some('v'), field: "logging.verbosity" },
    flag("vmodule", "logging.vmodule"),
];

/// The fields that a flag sets even if there is a file: kube-proxy has it so, so that `-v=5` always works.
const ALWAYS: &str = "logging.";

/// Those that were given, with their texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldFlags(Vec<(&'static str, &'static str, String)>);

impl Args for FieldFlags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| {
            let argument = Arg::new(flag.name).long(flag.name).hide(true).action(ArgAction::Set).value_name("VALUE");
            let argument = match flag.short {
                Some(letter) => argument.short(letter),
                None => argument,
            };
            command.arg(match default(flag.field) {
                Value::Bool(_) => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
                _ => argument.allow_hyphen_values(true),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FieldFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |flag: &Flag| Some((flag.name, flag.field, matches.get_one::<String>(flag.name)?.clone()));
        Ok(FieldFlags(FLAGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// In its mode ipvs kube-proxy takes the periods of that mode's own flags alone.
fn of_ipvs(field: &'static str, name: &str) -> &'static str {
    match field {
        "nftables.syncPeriod" if name.starts_with("iptables-") => "iptables.syncPeriod",
        "nftables.minSyncPeriod" if name.starts_with("iptables-") => "iptables.minSyncPeriod",
        other => other,
    }
}

impl FieldFlags {
    /// Puts them into the configuration. Where that comes from a file, most of them are left out, and named in the
    /// warnings that are returned.
    ///
    /// # Errors
    /// A message that names the flag whose value is none of its field's.
    pub fn apply(&self, configuration: &mut KubeProxyConfiguration, has_file: bool) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        // what some of them mean depends on the mode
        let (modes, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|(_, field, _)| *field == "mode");
        for (name, field, text) in modes.into_iter().chain(others) {
            let field = if configuration.mode == "ipvs" { of_ipvs(field, name) } else { field };
            if has_file && !field.starts_with(ALWAYS) {
                warnings.push(format!("--{name} is ignored, because --config is given"));
            } else {
                *configuration =
                    with(configuration, field, text).map_err(|message| format!("--{name}={text}: {message}"))?;
            }
        }
        Ok(warnings)
    }
}

fn as_value(configuration: &KubeProxyConfiguration) -> Value {
    serde_json::to_value(configuration).expect("a configuration is plain data")
}

/// The value that a field has by default.
fn default(field: &str) -> Value {
    let whole = as_value(&KubeProxyConfiguration::default());
    whole.pointer(&pointer(field)).cloned().expect("the table names fields that there are")
}

fn pointer(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}

/// The configuration with one field read from a flag's text.
fn with(configuration: &KubeProxyConfiguration, field: &str, text: &str) -> Result<KubeProxyConfiguration, String> {
    let mut whole = as_value(configuration);
    let place = whole.pointer_mut(&pointer(field)).expect("the table names fields that there are");
    *place = match place {
        Value::Bool(_) => switch(text)?.into(),
        Value::Number(_) => text.parse::<i64>().map_err(|_| "it is not a whole number".to_owned())?.into(),
        Value::Array(_) if field.ends_with("vmodule") => pairs(text)?
            .map(|(pattern, level)| {
                let level: i64 = level.parse().map_err(|_| format!("{level:?} is not a whole number"))?;
                Ok(json!({"filePattern": pattern, "verbosity": level}))
            })
            .collect::<Result<_, String>>()?,
        Value::Array(_) => text.split(',').filter(|part| !part.is_empty()).map(Value::from).collect(),
        Value::Object(_) => {
            let gate = |(name, on): (&str, &str)| {
                let on = switch(on).map_err(|error| format!("{name}: {on:?}: {error}"))?;
                Ok((name.to_owned(), on.into()))
            };
            Value::Object(pairs(text)?.map(gate).collect::<Result<Map<_, _>, String>>()?)
        }
        _ => text.into(),
    };
    serde_json::from_value(whole).map_err(|error| error.to_string())
}

/// The parts of `a=1,b=2`.
fn pairs(text: &str) -> Result<impl Iterator<Item = (&str, &str)>, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').ok_or_else(|| format!("{part:?} has no =")));
    Ok(pairs.collect::<Result<Vec<_>, _>>()?.into_iter())
}
