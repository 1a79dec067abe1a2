//! The HTTP proxy on the way to an API server. kubeadm gives the kube-proxy DaemonSet the proxy variables of whoever ran it, so they
//! have to mean what they mean to kube-proxy.

use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Config;

/// The URL of a proxy, as kube has it.
pub type Proxy = hyper::Uri;

/// What the environment says of proxies, as `net/http` of Go reads it: upper case counts before lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: String,
    https: String,
    no: String,
}

impl Proxies {
    /// Those of this process.
    pub fn of_environment() -> Proxies {
        let first = |names: [&str; 2]| {
            let values = names.into_iter().filter_map(|name| std::env::var(name).ok());
            values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty()).unwrap_or_default()
        };
        Proxies {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            no: first(["NO_PROXY", "no_proxy"]),
        }
    }

    /// Sends the way to a server through the environment's proxy, or past it. A loopback address is never behind one.
    ///
    /// # Errors
    /// The proxy that it would go through is no URL.
    pub fn route(&self, server: &mut Config) -> Result<(), String> {
        server.proxy_url = None;
        let url = &server.cluster_url;
        let is_secure = url.scheme_str() == Some("https");
        let (name, proxy) = if is_secure { ("HTTPS_PROXY", &self.https) } else { ("HTTP_PROXY", &self.http) };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        if proxy.is_empty() || is_loopback || self.no.split(',').any(|entry| entry.trim() == "*") {
            return Ok(());
        }
        let proxy = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
        if Matcher::builder().no(self.no.as_str()).all(proxy.as_str()).build().intercept(url).is_some() {
            server.proxy_url = Some(proxy.parse().map_err(|error| format!("{name}={proxy}: {error}"))?);
        } else if Matcher::builder().all(proxy.as_str()).build().intercept(url).is_none() {
            return Err(format!("{name}={proxy}: not a URL such as http://192.0.2.1:3128"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(http: &str, https: &str, no: &str, server: &str) -> Result<Option<String>, String> {
        let proxies = Proxies { http: http.into(), https: https.into(), no: no.into() };
        let mut config = Config::new(server.parse().unwrap());
        proxies.route(&mut config)?;
        Ok(config.proxy_url.map(|url| url.to_string()))
    }

    #[test]
    fn a_server_is_behind_the_proxy_of_its_scheme() {
        let through = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(route("", "http://p:3128", "", "https://api.example:6443"), through("http://p:3128/"));
        assert_eq!(route("", "p:3128", "", "https://api.example:6443"), through("http://p:3128/"));
        assert_eq!(route("http://p:3128", "", "", "http://192.0.2.1"), through("http://p:3128/"));
        assert_eq!(route("http://p:3128", "", "", "https://192.0.2.1:6443"), Ok(None));
        assert_eq!(route("", "http://u:s@p:3128", "", "https://192.0.2.1:6443"), through("http://u:s@p:3128/"));
    }

    #[test]
    fn what_needs_no_proxy_goes_past_it() {
        for (no, server) in [
            ("192.0.2.0/24", "https://192.0.2.1:6443"),
            ("a.example, 192.0.2.1,", "https://192.0.2.1:6443"),
            ("*", "https://192.0.2.1:6443"),
            ("*", "https://api.example:6443"),
            (".example", "https://api.example:6443"),
            ("example", "https://api.example:6443"),
            ("fd00::/8", "https://[fd00::1]:6443"),
            ("", "https://127.0.0.1:6443"),
            ("", "https://[::1]:6443"),
            ("", "https://localhost:6443"),
        ] {
            assert_eq!(route("", "http://p:3128", no, server), Ok(None), "{no}: {server}");
        }
        assert!(route("", "http://p:3128", "10.0.0.0/8,other", "https://192.0.2.1:6443").unwrap().is_some());
    }

    #[test]
    fn a_proxy_that_is_no_url_is_named() {
        for proxy in ["ftp://p:21", "http://", "http://a b"] {
            let error = route("", proxy, "", "https://192.0.2.1:6443").unwrap_err();
            assert!(error.starts_with(&format!("HTTPS_PROXY={proxy}: ")), "{error}");
        }
    }
}
