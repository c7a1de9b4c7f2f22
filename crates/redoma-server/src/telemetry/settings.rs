//! Where spans go, and how many of them.

use axum::http::uri::{Authority, PathAndQuery, Scheme, Uri};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Where a collector that is not told otherwise takes traces.
const PATH: &str = "/v1/traces";
const LONGEST_NAME: usize = 128;

/// Headers that the request has of its own.
const OWN: [&str; 6] =
    ["host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection"];

#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryConfig {
    pub endpoint: Endpoint,
    /// With every request to it; the values are secrets.
    pub headers: ExportHeaders,
    pub sample: Sample,
    pub service_name: ServiceName,
}

/// Why telemetry can't be as it was written. Says nothing of what stands in a header, nor of an address, which may have a
/// password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    #[error("traces: not an address of a collector; write one such as http://127.0.0.1:4318")]
    NotAnAddress,
    #[error(
        "traces: https is not spoken here; run an OpenTelemetry collector on this host, write its address \
         (http://127.0.0.1:4318), and let it pass traces on with TLS"
    )]
    Tls,
    #[error(
        "traces: no user, password or query in the address; what a collector wants to know goes into `headers`"
    )]
    SecretInAddress,
    #[error("headers: `{0}` is not a header's name")]
    HeaderName(String),
    #[error("headers: the value of `{0}` can't stand in a header")]
    HeaderValue(HeaderName),
    #[error("headers: `{0}` is set by Redoma itself")]
    OwnHeader(HeaderName),
    #[error("sample: a share of traces is a number from 0 to 1")]
    Sample,
    #[error("service_name: 1 to {LONGEST_NAME} bytes without control characters")]
    ServiceName,
}

/// A collector's address: OTLP over HTTP, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    authority: Authority,
    path: PathAndQuery,
}

impl std::str::FromStr for Endpoint {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        let uri: Uri = text.parse().map_err(|_| TelemetryError::NotAnAddress)?;
        let (scheme, authority) = uri.scheme().zip(uri.authority()).ok_or(TelemetryError::NotAnAddress)?;
        if *scheme == Scheme::HTTPS {
            return Err(TelemetryError::Tls);
        }
        if authority.as_str().contains('@') || text.contains(['?', '#']) {
            return Err(TelemetryError::SecretInAddress);
        }
        // A number that is no port would count as none.
        let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let has_port = port.is_empty() || authority.port_u16().is_some_and(|port| port > 0);
        if *scheme != Scheme::HTTP || authority.host().is_empty() || !has_port {
            return Err(TelemetryError::NotAnAddress);
        }
        let path = match uri.path() {
            "" | "/" => PathAndQuery::from_static(PATH),
            _ => uri.path_and_query().cloned().ok_or(TelemetryError::NotAnAddress)?,
        };
        Ok(Self { authority: authority.clone(), path })
    }
}

impl Endpoint {
    /// As it stands in the request's `Host`, and in the log.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// To connect to.
    pub(super) fn host_and_port(&self) -> (&str, u16) {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        (host, self.authority.port_u16().unwrap_or(80))
    }
}

/// What a collector wants to be told with each request, such as a token. Nothing of it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportHeaders(HeaderMap);

impl ExportHeaders {
    pub fn new<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, TelemetryError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let shown = || TelemetryError::HeaderName(name.escape_debug().take(64).collect());
            let name: HeaderName = name.parse().map_err(|_| shown())?;
            if OWN.contains(&name.as_str()) {
                return Err(TelemetryError::OwnHeader(name));
            }
            let mut value: HeaderValue =
                value.parse().map_err(|_| TelemetryError::HeaderValue(name.clone()))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(Self(map))
    }

    pub(super) fn map(&self) -> &HeaderMap {
        &self.0
    }
}

/// The share of traces that is kept, of those of which no caller has decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample(f64);

impl Sample {
    pub fn new(share: f64) -> Result<Self, TelemetryError> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(TelemetryError::Sample) }
    }

    pub(super) fn share(self) -> f64 {
        self.0
    }
}

impl Default for Sample {
    fn default() -> Self {
        Self(1.0)
    }
}

/// What this server is called among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName(String);

impl ServiceName {
    pub fn new(name: &str) -> Result<Self, TelemetryError> {
        let is_one = (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        if is_one { Ok(Self(name.to_owned())) } else { Err(TelemetryError::ServiceName) }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServiceName {
    fn default() -> Self {
        Self("redoma".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_the_usual_one() {
        let parse = |text: &str| text.parse::<Endpoint>();
        for (text, host, port, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/traces"),
            ("http://127.0.0.1:4318/", "127.0.0.1", 4318, "/v1/traces"),
            ("http://collector", "collector", 80, "/v1/traces"),
            ("http://[::1]:4318/otlp/v1/traces", "::1", 4318, "/otlp/v1/traces"),
        ] {
            let endpoint = parse(text).unwrap();
            assert_eq!((endpoint.host_and_port(), endpoint.path()), ((host, port), path), "{text}");
        }
        for (text, why) in [
            ("https://collector:4318", TelemetryError::Tls),
            ("HTTPS://collector", TelemetryError::Tls),
            ("http://me:secret@collector:4318", TelemetryError::SecretInAddress),
            ("http://collector:4318/v1/traces?key=secret", TelemetryError::SecretInAddress),
            ("127.0.0.1:4318", TelemetryError::NotAnAddress),
            ("grpc://127.0.0.1:4317", TelemetryError::NotAnAddress),
            ("http://:4318", TelemetryError::NotAnAddress),
            ("http://collector:0", TelemetryError::NotAnAddress),
            ("http://collector:99999", TelemetryError::NotAnAddress),
            ("http://col lector", TelemetryError::NotAnAddress),
            ("", TelemetryError::NotAnAddress),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_header_is_never_shown() {
        let headers = ExportHeaders::new([("Authorization", "Bearer canary")]).unwrap();
        let shown = format!("{headers:?}");
        assert!(shown.contains("authorization") && !shown.contains("canary"), "{shown}");
        let error = ExportHeaders::new([("x-token", "canary\r\nx: y")]).unwrap_err();
        assert!(error.to_string().contains("x-token") && !error.to_string().contains("canary"), "{error}");
        assert!(ExportHeaders::new([("a b", "x")]).is_err());
        assert!(ExportHeaders::new([("Content-Length", "5")]).is_err());
    }

    #[test]
    fn a_share_is_from_none_to_all() {
        assert!(Sample::new(0.0).is_ok() && Sample::new(1.0).is_ok());
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Sample::new(share), Err(TelemetryError::Sample), "{share}");
        }
    }
}
