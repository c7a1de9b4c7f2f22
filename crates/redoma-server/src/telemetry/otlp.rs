//! Traces in the words of OTLP, as JSON: ids in hexadecimal, 64-bit numbers as text, enums as numbers.
//!
//! Each request is a span of its own kind (`SERVER`) with one below it for each part of the way. Names and attributes follow
//! OpenTelemetry's conventions for HTTP; what is Redoma's own begins with `redoma.`. Nothing in it comes from a client but the ids of
//! its own trace.

use std::time::Duration;

use redoma_engine::meter::Phase;
use serde_json::{Value, json};

use super::trace::{Finished, FinishedPhase, Ran};
use super::traceparent::SpanId;

const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// W3C's flags in the lowest byte (sampled), then whether it is known if the parent is in another process, and if it is.
const OF_THIS_PROCESS: u32 = 0x101;
const OF_ANOTHER: u32 = 0x301;

/// The body of a request to the collector.
pub fn body(service: &str, traces: &[Finished]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<_> = traces.iter().flat_map(spans).collect();
    let request = json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", service), text("service.version", version)] },
        "scopeSpans": [{ "scope": { "name": "redoma", "version": version }, "spans": spans }],
    }] });
    request.to_string().into_bytes()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u16) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn nanoseconds(time: Duration) -> String {
    time.as_nanos().to_string()
}

fn spans(trace: &Finished) -> Vec<Value> {
    let mut spans = vec![server_span(trace)];
    spans.extend(trace.phases.iter().filter_map(|phase| phase_span(trace, phase)));
    spans
}

fn server_span(trace: &Finished) -> Value {
    let Finished { ids, request, status, failure, .. } = trace;
    let mut attributes = vec![
        text("http.request.method", request.method),
        text("http.route", request.route),
        text("url.scheme", "http"),
    ];
    attributes.extend(status.map(|status| number("http.response.status_code", status)));
    attributes.extend(trace.ran.iter().flat_map(of_run));
    let status = status.filter(|status| *status >= 500).map(|status| status.to_string());
    let error = failure.map(str::to_owned).or(status);
    attributes.extend(error.as_deref().map(|error| text("error.type", error)));
    let mut span = json!({
        "traceId": ids.trace.to_string(),
        "spanId": ids.span.to_string(),
        "flags": if ids.parent.is_some() { OF_ANOTHER } else { OF_THIS_PROCESS },
        "name": format!("{} {}", request.method, request.route),
        "kind": SERVER,
        "startTimeUnixNano": nanoseconds(trace.begun),
        "endTimeUnixNano": nanoseconds(trace.ended),
        "attributes": attributes,
        "status": {},
    });
    if let Some(parent) = ids.parent {
        span["parentSpanId"] = parent.to_string().into();
    }
    if error.is_some() {
        span["status"]["code"] = ERROR.into();
    }
    span
}

fn phase_span(trace: &Finished, phase: &FinishedPhase) -> Option<Value> {
    let ran = trace.ran.iter().filter(|_| phase.phase == Phase::Run);
    Some(json!({
        "traceId": trace.ids.trace.to_string(),
        "spanId": SpanId::random()?.to_string(),
        "parentSpanId": trace.ids.span.to_string(),
        "flags": OF_THIS_PROCESS,
        "name": phase.phase.name(),
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(phase.begun),
        "endTimeUnixNano": nanoseconds(phase.ended),
        "attributes": ran.flat_map(of_run).collect::<Vec<_>>(),
        "status": {},
    }))
}

fn of_run(ran: &Ran) -> [Value; 4] {
    [
        text("redoma.language", &ran.language),
        text("redoma.profile", &ran.profile),
        text("redoma.isolation", &ran.isolation),
        text("redoma.outcome", ran.outcome),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::trace::tests::finished;
    use super::*;

    fn server(trace: Finished) -> Value {
        let body: Value = serde_json::from_slice(&body("redoma", &[trace])).unwrap();
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone()
    }

    #[test]
    fn only_the_servers_own_fault_is_an_error() {
        for (status, failure, is_error) in [
            (Some(200), None, false),
            (Some(429), None, false),
            (Some(404), None, false),
            (None, None, false),
            (Some(503), None, true),
            (Some(500), Some("internal"), true),
            // A stream had begun with 200.
            (Some(200), Some("unavailable"), true),
        ] {
            let span = server(Finished { status, failure, ..finished() });
            let expected = if is_error { json!({ "code": 2 }) } else { json!({}) };
            assert_eq!(span["status"], expected, "{status:?} {failure:?}");
            assert_eq!(span.to_string().contains("error.type"), is_error);
        }
    }

    #[test]
    fn numbers_of_64_bits_are_text() {
        let span =
            server(Finished { status: Some(200), begun: Duration::new(1_700_000_000, 1), ..finished() });
        assert_eq!(span["startTimeUnixNano"], "1700000000000000001");
        let status = json!({ "key": "http.response.status_code", "value": { "intValue": "200" } });
        assert!(span["attributes"].as_array().unwrap().contains(&status), "{span}");
        assert!(span.get("parentSpanId").is_none());
    }
}
