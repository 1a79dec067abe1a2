//! The status page: what a person wants to know first, as plain HTML.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::http::Answer;
use super::observer::{Status, SyncKind, Synced};
use crate::amounts::counted;
use crate::plan::{FrontendAddress, PortPlan, Verdict};
use crate::tracker::Tracker;

/// How many Services are shown at most.
const MOST_SERVICES: usize = 200;
/// How long the loop may take to say what they are: it may be in the middle of a large change.
const PATIENCE: Duration = Duration::from_secs(2);

const CONTENT_TYPE: &str = "text/html; charset=utf-8";
/// Nothing is loaded and nothing runs, whatever the text says.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'";

const STYLE: &str = "
  body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }
  table { border-collapse: collapse; margin: .5rem 0 1.5rem } th, td { text-align: left; padding: .2rem .8rem .2rem 0 }
  th { font-weight: 600; border-bottom: 1px solid #bbb } td { border-bottom: 1px solid #eee; vertical-align: top }
  td.n { text-align: right; font-variant-numeric: tabular-nums } .good { color: #176b2c } .bad { color: #a3170d }
";

/// A question to the loop, which alone knows the Services.
#[derive(Debug)]
pub struct Question {
    text: String,
    reply: oneshot::Sender<Found>,
}

/// Some of the Services.
#[derive(Debug)]
struct Found {
    plans: Vec<PortPlan>,
    rest: usize,
}

impl Question {
    /// Answers it.
    pub fn answer(self, tracker: &Tracker) {
        let (plans, rest) = tracker.find_plans(&self.text, MOST_SERVICES);
        // whoever asked may have gone
        let _ = self.reply.send(Found { plans, rest });
    }
}

/// Puts a question to the loop; false if there is no loop any more.
#[derive(Clone)]
pub struct Ask(Arc<dyn Fn(Question) -> bool + Send + Sync>);

impl Ask {
    /// Through this function.
    pub fn new(ask: impl Fn(Question) -> bool + Send + Sync + 'static) -> Ask {
        Ask(Arc::new(ask))
    }

    async fn find(&self, text: &str) -> Option<Found> {
        let (reply, found) = oneshot::channel();
        if !(self.0)(Question { text: text.into(), reply }) {
            return None;
        }
        tokio::time::timeout(PATIENCE, found).await.ok()?.ok()
    }
}

/// What is the same all the time.
#[derive(Clone, Debug)]
pub struct Host {
    /// The node's name.
    pub node: String,
    /// `nftables`.
    pub mode: String,
}

/// The page, with the Services whose names hold what the query asks for.
pub async fn answer(ask: &Ask, host: &Host, status: Status, is_current: bool, query: &str) -> Answer {
    let text = parameter(query, "services");
    let found = ask.find(&text).await;
    let body = page(host, &status, is_current, &text, found.as_ref());
    Answer::new(200, CONTENT_TYPE, body).with_header("content-security-policy", SECURITY_POLICY)
}

fn page(host: &Host, status: &Status, is_current: bool, text: &str, found: Option<&Found>) -> String {
    let mut page = String::new();
    let node = escaped(&host.node);
    let _ = writeln!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>svcmap on {node}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>svcmap on {node}</h1>"
    );
    health(&mut page, host, status, is_current);
    syncs(&mut page, status);
    services(&mut page, text, found);
    page += "</body>\n</html>\n";
    page
}

fn health(page: &mut String, host: &Host, status: &Status, is_current: bool) {
    let progress = &status.progress;
    let (class, verdict) = match (is_current, progress.damaged, progress.node_leaving) {
        (false, ..) => ("bad", "behind: a change has been waiting for too long"),
        (true, true, _) => ("bad", "somebody else has changed the rules, which are being put right"),
        (true, false, true) => ("bad", "in step, but the node is about to go"),
        (true, false, false) => ("good", "in step"),
    };
    let counts = &status.counts;
    let _ = writeln!(page, "<p class=\"{class}\" id=\"health\">{verdict}</p>");
    if let Some(failure) = &status.failure {
        let _ = writeln!(page, "<p class=\"bad\">The last sync failed: {}</p>", escaped(failure));
    }
    let _ = writeln!(
        page,
        "<p>Mode {}, version {}. {}, {} of them proxied; {} with {}. \
         Last in step: {}.</p>\n\
         <p><a href=\"/metrics\">metrics</a> · <a href=\"/configz\">configuration</a></p>",
        escaped(&host.mode),
        env!("CARGO_PKG_VERSION"),
        counted(counts.services, "Service"),
        counts.proxied,
        counted(counts.slices, "EndpointSlice"),
        counted(counts.endpoints, "endpoint"),
        progress.updated.map_or("never".into(), shown),
    );
}

fn syncs(page: &mut String, status: &Status) {
    *page += "<h2>Last changes of the kernel's rules</h2>\n<table>\n<tr><th>when<th>what was sent<th>added<th>deleted\
              <th>bytes<th>took<th>kernel</tr>\n";
    for Synced { at, kind, took, applied } in &status.syncs {
        let kind = match kind {
            SyncKind::Full => "what was missing",
            SyncKind::Partial => "the change",
        };
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{kind}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{took:.1?}\
             <td class=\"n\">{:.1?}</tr>",
            shown(*at),
            applied.added,
            applied.deleted,
            applied.bytes,
            applied.kernel,
        );
    }
    *page += "</table>\n";
}

fn services(page: &mut String, text: &str, found: Option<&Found>) {
    let _ = writeln!(
        page,
        "<h2>Services</h2>\n<form action=\"/\"><label>Names that hold <input name=\"services\" value=\"{}\"></label> \
         <button>show</button></form>",
        escaped(text)
    );
    let Some(Found { plans, rest }) = found else {
        *page += "<p class=\"bad\">They cannot be told just now: the rules are being changed. Please try again.</p>\n";
        return;
    };
    *page += "<table id=\"services\">\n<tr><th>Service<th>protocol<th>addresses<th>endpoints<th>on this node\
              <th>otherwise</tr>\n";
    plans.iter().for_each(|plan| row(page, plan));
    *page += "</table>\n";
    if *rest > 0 {
        let _ = writeln!(page, "<p>{rest} more are not shown.</p>");
    }
}

fn row(page: &mut String, plan: &PortPlan) {
    let address = |address: FrontendAddress| match address {
        FrontendAddress::Cluster(ip, port) => std::net::SocketAddr::new(ip, port).to_string(),
        FrontendAddress::External(ip, port) => format!("{} (external)", std::net::SocketAddr::new(ip, port)),
        FrontendAddress::NodePort(port) => format!("node port {port}"),
    };
    let addresses: Vec<String> = plan.frontends.iter().map(|frontend| address(frontend.address)).collect();
    let mut endpoints: Vec<_> = plan.cluster.iter().chain(&plan.local).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    let local = endpoints.iter().filter(|endpoint| endpoint.local).count();
    let has = |verdict| plan.frontends.iter().any(|frontend| frontend.no_endpoints == Some(verdict));
    let otherwise = match (has(Verdict::Reject), has(Verdict::Drop)) {
        (true, _) => "<span class=\"bad\">refused: no endpoint</span>",
        (false, true) => "<span class=\"bad\">dropped: none on this node</span>",
        (false, false) => "",
    };
    let _ = writeln!(
        page,
        "<tr><td>{}<td>{} {}<td>{}<td class=\"n\">{}<td class=\"n\">{local}<td>{otherwise}</tr>",
        escaped(plan.id.name.as_str()),
        plan.id.family,
        plan.protocol,
        addresses.join("<br>"),
        endpoints.len(),
    );
}

/// A time of day in UTC, with its date.
fn shown(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The text so that it means nothing to a browser but itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

/// A parameter of a query as a form sends it; empty where it is not there.
fn parameter(query: &str, name: &str) -> String {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let mut bytes = value.unwrap_or_default().bytes();
    let mut text = Vec::new();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte.unwrap_or_default()).to_digit(16);
        text.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                high.zip(low).map_or(b'?', |(high, low)| (high * 16 + low) as u8)
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&text).trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_is_markup() {
        let host = Host { node: "<b>n1</b>".into(), mode: "nftables".into() };
        let status = Status { failure: Some("<script>alert(\"1\")</script>".into()), ..Status::default() };
        let page = page(&host, &status, true, "\"><img src='x'>", None);
        for bad in ["<b>", "<script", "<img", "\">\"", "'x'"] {
            assert!(!page.contains(bad), "{bad}: {page}");
        }
        assert!(page.contains("value=\"&quot;&gt;&lt;img src=&#39;x&#39;&gt;\""), "{page}");
    }

    #[test]
    fn parameters_are_read_as_forms_send_them() {
        for (query, text) in [
            ("", ""),
            ("services=", ""),
            ("services=kube-system%2Fdns", "kube-system/dns"),
            ("a=b&services=a+b%3C%c3%a4", "a b<ä"),
            ("services=%", "?"),
            ("services=%4", "?"),
            ("services=%zz%41", "?A"),
            ("xservices=1&services2=2", ""),
        ] {
            assert_eq!(parameter(query, "services"), text, "{query:?}");
        }
    }
}
