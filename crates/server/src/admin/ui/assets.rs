//! The files of the page: in the binary, with the headers that keep foreign code and foreign frames out.
//!
//! A browser asks each time whether a file changed (`no-cache`) and is told 304 with an empty body if not, so
//! a page never mixes files of two versions for longer than one load.
//! Source: RFC 9110 §13.1.2 (If-None-Match); Content Security Policy Level 3.

use std::hash::{BuildHasher, Hasher};

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::admin::bridge::Bridge;

/// Scripts, styles, pictures and requests of this origin only; no inline scripts or styles, no frames.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      object-src 'none'";
/// Most bytes of all files together.
#[cfg(test)]
const BYTES_MAX: usize = 200_000;

/// A file: its name below `/ui/`, its type and its content.
type Asset = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const ASSETS: [Asset; 16] = [
    ("", HTML, include_str!("assets/index.html")),
    ("console.css", STYLE, include_str!("assets/console.css")),
    ("icon.svg", PICTURE, include_str!("assets/icon.svg")),
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("chart.js", SCRIPT, include_str!("assets/chart.js")),
    ("heatmap.js", SCRIPT, include_str!("assets/heatmap.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("format.js", SCRIPT, include_str!("assets/format.js")),
    ("history.js", SCRIPT, include_str!("assets/history.js")),
    ("ask.js", SCRIPT, include_str!("assets/ask.js")),
    ("overview.js", SCRIPT, include_str!("assets/overview.js")),
    ("tables.js", SCRIPT, include_str!("assets/tables.js")),
    ("partitions.js", SCRIPT, include_str!("assets/partitions.js")),
    ("traces.js", SCRIPT, include_str!("assets/traces.js")),
    ("query.js", SCRIPT, include_str!("assets/query.js")),
    ("nodes.js", SCRIPT, include_str!("assets/nodes.js")),
];

pub(super) fn routes() -> Router<Bridge> {
    let root = get(async || (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "/ui/")]));
    ASSETS.iter().fold(Router::new().route("/ui", root), |router, asset| {
        let tag = tag(asset.2);
        let answer = get(async move |headers: HeaderMap| respond(asset, &tag, &headers));
        router.route(&format!("/ui/{}", asset.0), answer)
    })
}

/// The entity tag of a content.
fn tag(content: &str) -> String {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    hasher.write(content.as_bytes());
    format!("\"{:016x}\"", hasher.finish())
}

fn respond(asset: &Asset, tag: &str, headers: &HeaderMap) -> Response {
    let (_, kind, content) = *asset;
    let own = [
        (ETAG, tag),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|tags| tags.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)) {
        return (StatusCode::NOT_MODIFIED, own).into_response();
    }
    (own, [(CONTENT_TYPE, kind)], Body::from(content)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let asset = &ASSETS[0];
        let known = tag(asset.2);
        let with = |tags: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, tags.parse().unwrap());
            respond(asset, &known, &headers).status().as_u16()
        };
        assert_eq!(respond(asset, &known, &HeaderMap::new()).status().as_u16(), 200);
        assert_eq!(with(&known), 304);
        assert_eq!(with(&format!("\"other\", W/{known}")), 304);
        assert_eq!(with("\"other\""), 200);
        assert_ne!(tag("a"), tag("b"));
    }

    #[test]
    fn every_answer_has_the_policy() {
        let answer = respond(&ASSETS[3], "\"a\"", &HeaderMap::new());
        assert_eq!(answer.headers()[CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(answer.headers()[CONTENT_TYPE], SCRIPT);
    }

    #[test]
    fn the_page_is_small_and_names_no_other_origin() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.2.len()).sum();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
        for (name, _, content) in ASSETS {
            let foreign = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{name} names an address");
        }
    }

    #[test]
    fn every_import_is_a_file_of_the_page() {
        for (name, _, content) in ASSETS {
            for from in content.split(" from \"./").skip(1) {
                let file = from.split('"').next().unwrap();
                assert!(ASSETS.iter().any(|asset| asset.0 == file), "{name} imports {file}");
            }
        }
    }
}
