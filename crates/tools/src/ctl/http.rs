//! A client for the node's administration API: one request per connection, answers of bounded size.
//!
//! Source: RFC 9112, as far as the node's own server needs it. A body has a length or ends with the
//! connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::net::Stream;
use reactor::{Deadline, timeout};
use serde_json::Value;

use super::CtlError;

/// Largest answer that is taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A node's administration.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) address: SocketAddr,
    pub(super) host: String,
}

/// Puts a parameter of a path into its written form.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl Api {
    /// GET.
    pub(super) async fn get(&self, path: &str) -> Result<Value, CtlError> {
        self.ask("GET", path).await
    }

    /// POST without a body.
    pub(super) async fn post(&self, path: &str) -> Result<Value, CtlError> {
        self.ask("POST", path).await
    }

    /// DELETE.
    pub(super) async fn delete(&self, path: &str) -> Result<Value, CtlError> {
        self.ask("DELETE", path).await
    }

    /// GET of a text.
    pub(super) async fn text(&self, path: &str) -> Result<String, CtlError> {
        match self.get(path).await? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        }
    }

    /// GET of a list of texts.
    pub(super) async fn texts(&self, path: &str) -> Result<Vec<String>, CtlError> {
        let value = self.get(path).await?;
        let list = value.as_array().ok_or_else(|| CtlError::Answer(format!("{path}: not a list")))?;
        Ok(list.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect())
    }

    /// GET of a number.
    pub(super) async fn number(&self, path: &str) -> Result<f64, CtlError> {
        let value = self.get(path).await?;
        value.as_f64().ok_or_else(|| CtlError::Answer(format!("{path}: not a number")))
    }

    /// GET of a list of keys and values, both taken as text.
    pub(super) async fn pairs(&self, path: &str) -> Result<Vec<(String, Value)>, CtlError> {
        let value = self.get(path).await?;
        let list = value.as_array().ok_or_else(|| CtlError::Answer(format!("{path}: not a list")))?;
        let pair = |item: &Value| {
            let key = item.get("key")?.as_str()?.to_owned();
            Some((key, item.get("value")?.clone()))
        };
        Ok(list.iter().filter_map(pair).collect())
    }

    async fn ask(&self, method: &str, path: &str) -> Result<Value, CtlError> {
        let (status, body) = self.exchange(method, path).await?;
        let value: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).map_err(|error| CtlError::Answer(format!("{path}: {error}")))?
        };
        if status == 200 {
            return Ok(value);
        }
        let message = value.get("message").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        Err(CtlError::Refused { status, message })
    }

    async fn exchange(&self, method: &str, path: &str) -> Result<(u16, Vec<u8>), CtlError> {
        let unreachable = |source: io::Error| CtlError::Connect {
            host: self.host.clone(),
            port: self.address.port(),
            source,
        };
        let connecting = timeout(Deadline::after(CONNECT_TIME), Stream::connect(self.address)).await;
        let stream =
            connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.send(request.into_bytes()).await.0.map_err(unreachable)?;
        let mut answer = Vec::new();
        // Each round takes at least one byte or ends; a compaction may take hours, so there is no time limit.
        while let Some(chunk) = stream.recv().await.map_err(unreachable)? {
            answer.extend_from_slice(&chunk);
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(CtlError::Answer(format!("{path}: more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
        parse(&answer)
            .ok_or_else(|| CtlError::Answer(format!("{path}: not an answer of a node's administration")))
    }
}

/// Status and body of a whole answer.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let head_bytes = answer.windows(4).take(HEAD_BYTES_MAX).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..head_bytes]).ok()?;
    let mut lines = head.split("\r\n");
    let mut status_line = lines.next()?.split(' ');
    if !status_line.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let status = status_line.next()?.parse().ok()?;
    let mut body = &answer[head_bytes + 4..];
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            body = body.get(..value.trim().parse().ok()?)?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return None;
        }
    }
    Some((status, body.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_status_and_as_many_bytes_as_it_says() {
        let check = |text: &str, expected: Option<(u16, &str)>| {
            let parsed = parse(text.as_bytes());
            let parsed = parsed.as_ref().map(|(status, body)| (*status, std::str::from_utf8(body).unwrap()));
            assert_eq!(parsed, expected, "{text:?}");
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}rest", Some((200, "{}")));
        check("HTTP/1.1 404 Not Found\r\n\r\nto the end", Some((404, "to the end")));
        check("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n{}", None);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", None);
        check("HTTP/1.1 twenty\r\n\r\n", None);
        check("\u{4}\0\0\0\u{6}", None);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", None);
    }

    #[test]
    fn names_are_escaped_for_a_path() {
        assert_eq!(escaped("ks_1.t-x"), "ks_1.t-x");
        assert_eq!(escaped("a b/c?ü"), "a%20b%2Fc%3F%C3%BC");
    }
}
