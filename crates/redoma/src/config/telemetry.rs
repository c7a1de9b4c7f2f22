//! `[telemetry]`: where traces go. What stands in a header is a secret, so no message repeats what was written there, right or
//! wrong.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use redoma_server::{ExportHeaders, Sample, ServiceName, TelemetryConfig};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// A collector that takes OTLP over HTTP
    traces: Option<Address>,
    /// With each request to it
    #[serde(default)]
    headers: Headers,
    /// The share of traces that is kept [1.0]
    sample: Option<f64>,
    /// What this server is called there [redoma]
    service_name: Option<String>,
}

/// As written. Somebody may have put a password into it.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(transparent)]
struct Address(String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[derive(Clone, Default, PartialEq)]
struct Headers(BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let refused = || D::Error::custom("`headers` is a table of texts, such as { authorization = \"…\" }");
        let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else {
            return Err(refused());
        };
        let texts = table.into_iter().map(|(name, value)| match value {
            toml::Value::String(text) => Ok((name, text)),
            _ => Err(refused()),
        });
        texts.collect::<Result<_, _>>().map(Self)
    }
}

impl TelemetrySettings {
    /// What a server is to be told; nothing, if no collector is named. All of it is checked even so.
    pub fn config(&self) -> anyhow::Result<Option<TelemetryConfig>> {
        let headers = self.headers.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = ExportHeaders::new(headers).context("telemetry")?;
        let sample = self.sample.map_or(Ok(Sample::default()), Sample::new).context("telemetry")?;
        let named = self.service_name.as_deref().map(ServiceName::new);
        let service_name = named.unwrap_or(Ok(ServiceName::default())).context("telemetry")?;
        let Some(Address(address)) = &self.traces else { return Ok(None) };
        let endpoint = address.parse().context("telemetry")?;
        Ok(Some(TelemetryConfig { endpoint, headers, sample, service_name }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<TelemetryConfig>, String> {
        let settings: TelemetrySettings = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        settings.config().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn nothing_is_sent_unless_somebody_says_where() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("sample = 0.5\nservice_name = \"x\""), Ok(None));
        let config = parse("traces = \"http://127.0.0.1:4318\"").unwrap().unwrap();
        assert_eq!((config.endpoint.authority(), config.endpoint.path()), ("127.0.0.1:4318", "/v1/traces"));
        assert_eq!((config.sample, config.service_name), (Sample::default(), ServiceName::default()));
    }

    #[test]
    fn what_can_not_be_is_refused_before_a_start() {
        let error = parse("traces = \"https://collector\"").unwrap_err();
        assert!(error.contains("run an OpenTelemetry collector on this host"), "{error}");
        for text in ["sample = 2.0", "sample = nan", "service_name = \"\"", "headers = { \"a b\" = \"c\" }"] {
            assert!(parse(text).unwrap_err().starts_with("telemetry: "), "{text}");
        }
    }

    #[test]
    fn secrets_are_in_no_message() {
        for text in [
            "headers = \"Bearer canary\"",
            "headers = [\"canary\"]",
            "headers = { authorization = [\"canary\"] }",
            "headers = { authorization = \"canary\\n\" }",
            "headers = { host = \"canary\" }",
            "traces = \"http://me:canary@collector:4318\"",
            "traces = \"https://me:canary@collector:4318\"",
            "traces = \"canary\"",
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("canary"), "{text}: {error}");
        }
        let text = "traces = \"http://me:canary@c\"\nheaders = { authorization = \"Bearer canary\" }";
        let settings: TelemetrySettings = toml::from_str(text).unwrap();
        assert!(!format!("{settings:?}").contains("canary"), "{settings:?}");
        let config = parse("traces = \"http://c\"\nheaders = { authorization = \"canary\" }").unwrap();
        assert!(!format!("{config:?}").contains("canary"), "{config:?}");
    }
}
