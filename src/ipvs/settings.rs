//! What of the configuration is for this mode alone.

use std::time::Duration;

use ipnet::IpNet;

use crate::config::Ipvs;

/// Chooses the real server by a hash of the source, where another is down too, and of the port: `IP_VS_SVC_F_SCHED_MH_FALLBACK`
/// and `IP_VS_SVC_F_SCHED_MH_PORT` of the kernel's `ip_vs.h`.
const MH_FLAGS: u32 = 0x8 | 0x10;

/// The kernel's schedulers; whether a kernel has all of them is its own affair.
const SCHEDULERS: [&str; 14] =
    ["rr", "wrr", "lc", "wlc", "fo", "ovf", "lblc", "lblcr", "sh", "dh", "mh", "sed", "nq", "twos"];

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which scheduler chooses the real server.
    pub scheduler: String,
    /// Virtual servers at these addresses are somebody else's, and left alone.
    pub exclude: Vec<IpNet>,
    /// Whether only the interface that has an address answers ARP for it.
    pub strict_arp: bool,
    /// How long the kernel remembers TCP sessions, those that ended, and UDP flows; a zero leaves its value as it is.
    pub timeouts: [Duration; 3],
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { scheduler: "rr".into(), exclude: Vec::new(), strict_arp: false, timeouts: Default::default() }
    }
}

impl Settings {
    /// Those of the configuration's group `ipvs`.
    ///
    /// # Errors
    /// A scheduler that there is not, or what is no prefix; the message names the field.
    pub fn of(configuration: &Ipvs) -> Result<Settings, String> {
        let scheduler = match configuration.scheduler.as_str() {
            "" => "rr",
            name if SCHEDULERS.contains(&name) => name,
            other => {
                return Err(format!("ipvs.scheduler: {other:?} is no scheduler; there are {}", SCHEDULERS.join(", ")));
            }
        };
        let prefix = |(at, text): (usize, &String)| {
            text.trim().parse().map_err(|_| format!("ipvs.excludeCIDRs[{at}]: {text:?} is not a prefix"))
        };
        Ok(Settings {
            scheduler: scheduler.into(),
            exclude: configuration.exclude_cidrs.iter().enumerate().map(prefix).collect::<Result<_, _>>()?,
            strict_arp: configuration.strict_arp,
            timeouts: [configuration.tcp_timeout.0, configuration.tcp_fin_timeout.0, configuration.udp_timeout.0],
        })
    }

    /// The flags of virtual servers that the scheduler needs.
    pub fn flags(&self) -> u32 {
        if self.scheduler == "mh" { MH_FLAGS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_are_named() {
        let with = |scheduler: &str, exclude: &str| {
            let exclude_cidrs = vec![exclude.to_owned()];
            Settings::of(&Ipvs { scheduler: scheduler.into(), exclude_cidrs, ..Ipvs::default() })
        };
        assert_eq!(with("", "10.0.0.0/8").unwrap().scheduler, "rr");
        assert_eq!(with("mh", "fd00::/64").unwrap().flags(), 0x18);
        assert!(with("roundrobin", "10.0.0.0/8").unwrap_err().starts_with("ipvs.scheduler: \"roundrobin\""));
        assert!(with("rr", "10.0.0.0").unwrap_err().starts_with("ipvs.excludeCIDRs[0]: \"10.0.0.0\""));
    }
}
