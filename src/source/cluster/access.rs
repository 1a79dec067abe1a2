//! The way to the API server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::failure::chain;
use super::proxy::{Proxies, Proxy};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Where a pod finds the credentials of its service account.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// How the API server is reached, and how hard it may be pressed.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// `--kubeconfig`, or `clientConnection.kubeconfig`. Without it, and outside of a pod, there are no credentials.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the URLs of the API servers, in the place of the kubeconfig's. Where one does not answer, the next is
    /// asked.
    pub masters: Vec<String>,
    /// `clientConnection.qps`: requests per second; below zero for no limit.
    pub qps: f32,
    /// `clientConnection.burst`: requests at once.
    pub burst: u32,
}

/// Why the way to the API server is not known.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The kubeconfig cannot be read, or is not complete.
    #[error("kubeconfig {}: {message}", path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// `--master` is no URL.
    #[error("--master {0}: not a URL such as https://192.0.2.1:6443")]
    Master(String),
    /// Neither was a cluster named nor is this a pod.
    #[error(
        "no cluster: name one with --kubeconfig FILE or --master URL, or run in a pod with a service account \
         ({SERVICE_HOST} is not set)"
    )]
    None,
    /// What the environment says of proxies cannot be used.
    #[error("{0}")]
    Proxy(String),
    /// The credentials of the pod cannot be used.
    #[error("the pod's service account: {0}")]
    ServiceAccount(String),
    /// The credentials cannot be used for a connection.
    #[error("{server}: {message}")]
    Credentials {
        /// The API server's URL.
        server: String,
        /// What is wrong.
        message: String,
    },
    /// The system gives no thread, or no file descriptor.
    #[error("the cluster cannot be followed: {0}")]
    Thread(io::Error),
}

impl Access {
    /// Whether a cluster is named, or this is a pod of one.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || !self.masters.is_empty() || is_pod()
    }

    /// One client configuration for each API server, from the files as they are now: credentials get replaced.
    pub(super) async fn servers(&self) -> Result<Vec<Config>, AccessError> {
        let mut proxy = None;
        let found = match &self.kubeconfig {
            Some(path) => {
                let (config, named) = from_kubeconfig(path).await?;
                proxy = named;
                Some(config)
            }
            None if is_pod() && (self.masters.is_empty() || Path::new(SERVICE_ACCOUNT_TOKEN).exists()) => {
                Some(Config::incluster_env().map_err(|error| AccessError::ServiceAccount(chain(&error)))?)
            }
            None => None,
        };
        let mut servers = Vec::new();
        for master in &self.masters {
            let url = parse_url(master).ok_or_else(|| AccessError::Master(master.clone()))?;
            let mut config = found.clone().unwrap_or_else(|| Config::new(Default::default()));
            config.cluster_url = url;
            servers.push(config);
        }
        if servers.is_empty() {
            servers.push(found.ok_or(AccessError::None)?);
        }
        let proxies = Proxies::of_environment();
        for server in &mut servers {
            // of a proxy, the kubeconfig has the last word
            match proxy.clone() {
                Some(named) => server.proxy_url = Some(named),
                None => proxies.route(server).map_err(AccessError::Proxy)?,
            }
            server.connect_timeout = Some(CONNECT);
            server.default_retry = false; // what fails is reported and tried again here, with pauses that grow
        }
        Ok(servers)
    }
}

fn is_pod() -> bool {
    std::env::var_os(SERVICE_HOST).is_some_and(|host| !host.is_empty())
}

/// With the proxy that it names for its current cluster, `proxy-url`.
async fn from_kubeconfig(path: &Path) -> Result<(Config, Option<Proxy>), AccessError> {
    let wrong = |message| AccessError::Kubeconfig { path: path.into(), message };
    let failed = |error| wrong(chain(&error));
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let named =
        proxy_url(&kubeconfig).map(|url| url.parse().map_err(|error| wrong(format!("proxy-url {url}: {error}"))));
    let named = named.transpose()?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    Ok((config, named))
}

fn proxy_url(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

/// A URL with a scheme that is known and a host.
fn parse_url<Url: std::str::FromStr>(text: &str) -> Option<Url> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    if host.is_empty() { None } else { text.parse().ok() }
}
