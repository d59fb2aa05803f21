//! Checks which requests may reach administration: those of tools and people, not those of web pages open in
//! a browser on the same machine.
//!
//! The API has no users; its only protection is that a client must be able to connect. A browser on the same
//! machine can, and it runs programs of strangers. A web page can send any GET and simple POST to any
//! address. If the page's own host name was made to resolve to this machine (DNS rebinding), `Host` has that
//! name; otherwise the browser sends `Origin` or `Sec-Fetch-Site`, which no page can leave out or change. So
//! `Host` has to be an address or a name of this machine, and a request that changes something must not come
//! from a foreign page. The console (`ui`) comes from this port, so its own requests pass. Tools send neither
//! `Origin` nor `Sec-Fetch-Site`, and need not.
//! Source: Fetch standard, "Origin" header and forbidden header names; W3C Fetch Metadata Request Headers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderName, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::limit::Place;

/// Most bytes of a request's body; no request here needs a large one.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Paths whose GET changes something, as in ScyllaDB.
const CHANGING_GETS: [&str; 2] =
    ["/storage_service/keyspace_upgrade_sstables/", "/storage_service/keyspace_scrub/"];
/// Paths of requests that end others: they are served however many long requests run.
const URGENT: [&str; 3] =
    ["/storage_service/drain", "/storage_service/native_transport", "/compaction_manager/stop_"];

/// The checks of a port.
pub(super) struct Guard {
    /// Allowed names in `Host`, in lower case, besides addresses and the names of the local host.
    names: Vec<String>,
    /// The port can be reached from other machines: names without a dot, which nobody can register, are
    /// allowed too.
    remote: bool,
    /// Whether `Host` is checked in requests that only read.
    reads: bool,
}

impl Guard {
    /// The checks of a port at `address`, which also has these `names`. A metrics port that other machines
    /// can reach answers to any name (`reads` is false): it has nothing to change.
    pub(super) fn new(address: IpAddr, names: &[String], reads: bool) -> Self {
        let own = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        let names = names.iter().map(|name| name.to_lowercase()).chain([own]).collect();
        Self { names, remote: !address.is_loopback(), reads }
    }

    fn knows(&self, host: &str) -> bool {
        let name = without_port(host).trim_end_matches('.').to_lowercase();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        // A `Host` with an address is safe: the client connected to that address, and no name resolution was
        // involved.
        address.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
            || (self.remote && !name.is_empty() && !name.contains('.'))
    }

    /// Whether a request may be served; the error says why not.
    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        let changes = changes(method, path);
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("").to_owned());
        let host = text(HOST);
        if let Some(host) = &host
            && (changes || self.reads)
            && !self.knows(host)
        {
            return Err(ApiError::forbidden(format!(
                "'{}' is no name of this node: ask by its address, or add the name to api_allowed_hosts",
                without_port(host)
            )));
        }
        if !changes {
            return Ok(());
        }
        if let Some(origin) = text(ORIGIN) {
            let same = origin.split_once("://").is_some_and(|(_, from)| Some(from) == host.as_deref());
            if !same {
                return Err(ApiError::forbidden(format!(
                    "a page of {origin} may not change anything here: only the console of this address may"
                )));
            }
        }
        if let Some(site) = text(HeaderName::from_static("sec-fetch-site"))
            && !["same-origin", "none"].contains(&site.as_str())
        {
            return Err(ApiError::forbidden(
                "a page of elsewhere may not change anything here: only the console of this address may",
            ));
        }
        let has_body = headers.contains_key(TRANSFER_ENCODING)
            || text(CONTENT_LENGTH).is_some_and(|length| length.trim() != "0");
        let known = match text(CONTENT_TYPE) {
            Some(kind) => {
                let kind = kind.split(';').next().unwrap_or_default().trim().to_lowercase();
                kind == "application/json" || kind == "application/x-www-form-urlencoded"
            }
            None => !has_body,
        };
        if known {
            Ok(())
        } else {
            Err(ApiError::unsupported_type(
                "a body has to be application/json or application/x-www-form-urlencoded",
            ))
        }
    }
}

/// Whether a request changes something.
fn changes(method: &Method, path: &str) -> bool {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => {
            CHANGING_GETS.iter().any(|begin| path.starts_with(begin))
        }
        _ => true,
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // A bracketed IPv6 address without a port ends with `]`, so its last part is not all digits.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Puts the guard, and the limits of `limit`, in front of all paths of a router.
pub(super) fn around(router: Router, guard: Guard) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(guard), serve))
}

async fn serve(
    State(guard): State<Arc<Guard>>,
    ConnectInfo(place): ConnectInfo<Place>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let long = changes(&parts.method, path) && !URGENT.iter().any(|begin| path.starts_with(begin));
    let Some(at_work) = place.begin(long) else {
        let busy = "too many requests are at work: wait for one to end, or stop compactions";
        return ApiError::unavailable(busy).into_response();
    };
    if let Err(error) = guard.check(&parts.method, path, &parts.headers) {
        return error.into_response();
    }
    // The whole body is received first: no handler waits for its client.
    let body = match tokio::time::timeout(place.times().body, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Body::from(bytes),
        Ok(Err(_)) => {
            return ApiError::too_large(format!("a body has {BODY_BYTES_MAX} bytes at most")).into_response();
        }
        Err(_) => return ApiError::timed_out("the body did not come in time").into_response(),
    };
    let response = next.run(Request::from_parts(parts, body)).await;
    drop(at_work);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, request: &str, headers: &[(&str, &str)], expected: u16) {
        let (method, path) = request.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let found = guard.check(&method.parse().unwrap(), path, &map);
        let status = found.as_ref().err().map_or(200, ApiError::status);
        assert_eq!(status, expected, "{request} {headers:?}: {found:?}");
    }

    fn local() -> Guard {
        Guard::new(IpAddr::from([127, 0, 0, 1]), &["db.example.org".to_owned()], true)
    }

    const DRAIN: &str = "POST /storage_service/drain";

    #[test]
    fn tools_are_served_as_they_ask() {
        let guard = local();
        for host in [
            "127.0.0.1:10000",
            "localhost:10000",
            "LOCALHOST",
            "[::1]:10000",
            "[::1]",
            "10.1.2.3:1",
            "db.example.org:10000",
        ] {
            check(&guard, DRAIN, &[("host", host)], 200);
        }
        let host = ("host", "127.0.0.1:10000");
        // `ceto ctl`, curl -X POST, curl -d, Java's clients, Scylla Manager, an HTTP/1.0 client.
        check(&guard, DRAIN, &[host, ("content-length", "0"), ("accept", "application/json")], 200);
        check(
            &guard,
            DRAIN,
            &[host, ("content-length", "5"), ("content-type", "application/x-www-form-urlencoded")],
            200,
        );
        check(
            &guard,
            DRAIN,
            &[host, ("content-length", "0"), ("content-type", "application/x-www-form-urlencoded")],
            200,
        );
        check(
            &guard,
            DRAIN,
            &[host, ("content-length", "2"), ("content-type", "application/json; charset=utf-8")],
            200,
        );
        check(&guard, DRAIN, &[host, ("content-type", "application/json")], 200);
        check(&guard, DRAIN, &[], 200);
        check(
            &guard,
            DRAIN,
            &[host, ("origin", "http://127.0.0.1:10000"), ("sec-fetch-site", "same-origin")],
            200,
        );
    }

    #[test]
    fn pages_of_elsewhere_change_nothing() {
        let guard = local();
        let host = ("host", "127.0.0.1:10000");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:8080", "http://localhost:10000"] {
            check(&guard, DRAIN, &[host, ("origin", origin)], 403);
        }
        for site in ["cross-site", "same-site"] {
            check(&guard, DRAIN, &[host, ("sec-fetch-site", site)], 403);
            check(&guard, "GET /storage_service/keyspace_scrub/a", &[host, ("sec-fetch-site", site)], 403);
        }
        check(&guard, "DELETE /storage_service/snapshots", &[host, ("origin", "http://evil.example")], 403);
        // Names of foreign pages that were made to resolve to this machine.
        for host in [
            "evil.example:10000",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "db1:10000",
            "",
            "[::1].evil",
        ] {
            check(&guard, DRAIN, &[("host", host)], 403);
            check(&guard, "GET /storage_service/keyspaces", &[("host", host)], 403);
        }
        for kind in ["text/plain", "multipart/form-data; boundary=x"] {
            check(&guard, DRAIN, &[host, ("content-type", kind), ("content-length", "3")], 415);
        }
        check(&guard, DRAIN, &[host, ("content-length", "3")], 415);
        check(&guard, DRAIN, &[host, ("transfer-encoding", "chunked")], 415);
    }

    #[test]
    fn a_port_for_others_has_the_names_of_machines() {
        let guard = Guard::new(IpAddr::from([0, 0, 0, 0]), &[], true);
        check(&guard, DRAIN, &[("host", "db1:10000")], 200);
        check(&guard, DRAIN, &[("host", "db1.evil.example:10000")], 403);
        let metrics = Guard::new(IpAddr::from([0, 0, 0, 0]), &[], false);
        check(&metrics, "GET /metrics", &[("host", "db1.example.org:9180")], 200);
        check(&metrics, "POST /metrics", &[("host", "db1.example.org:9180")], 403);
    }
}
