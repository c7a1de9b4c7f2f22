//! SARIF 2.1.0, the form that code scanning services take.

use std::fmt::Write;

use redoma_policy::scan::{ALL_KINDS, Kind, Level, Risk};
use serde_json::{Value, json};

use super::skipped::Skipped;
use super::{Outcome, origin_name};

pub(super) fn document(outcome: &Outcome) -> Value {
    let results: Vec<Value> = outcome
        .files
        .iter()
        .flat_map(|file| file.risks.iter().map(|risk| result(&file.path, risk)))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "redoma scan",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": ALL_KINDS.iter().map(rule).collect::<Vec<_>>(),
                },
            },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": outcome.skipped.iter().map(notification).collect::<Vec<_>>(),
            }],
            "results": results,
            "properties": { "skipped": outcome.skipped_by(Skipped::id) },
        }],
    })
}

/// A file that was not read.
fn notification((path, why): &(String, Skipped)) -> Value {
    json!({
        "descriptor": { "id": why.id() },
        "level": "note",
        "message": { "text": format!("{path} was not read, or not to its end: {}", why.why()) },
        "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(path) } } }],
    })
}

fn rule(kind: &Kind) -> Value {
    let sentence = |text: &str| {
        let mut letters = text.chars();
        letters
            .next()
            .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
    };
    json!({
        "id": kind.id,
        "shortDescription": { "text": sentence(kind.title) },
        "fullDescription": { "text": sentence(kind.why) },
        "help": {
            "text": format!("{} {}", sentence(kind.why), sentence(kind.advice)),
            "markdown": format!("**Why:** {}\n\n**What to do:** {}", sentence(kind.why), sentence(kind.advice)),
        },
        "defaultConfiguration": { "level": "warning" },
        "properties": { "tags": ["security"] },
    })
}

fn result(path: &str, risk: &Risk) -> Value {
    let place = risk.cell.map_or_else(String::new, |cell| format!(" (cell {cell}, line {})", risk.at.line));
    // Of a notebook, a line of the file is not known: the cell's is in the message.
    let region = match risk.cell {
        Some(_) => json!({ "startLine": 1 }),
        None => json!({
            "startLine": risk.at.line,
            "startColumn": risk.at.column,
            "snippet": { "text": risk.excerpt },
        }),
    };
    json!({
        "ruleId": risk.kind.id,
        "ruleIndex": ALL_KINDS.iter().position(|kind| kind.id == risk.kind.id).unwrap_or(0),
        "level": match risk.level {
            Level::Low => "note",
            Level::Medium => "warning",
            Level::High | Level::Critical => "error",
        },
        "message": { "text": format!("{}{place}: {}. {}.", risk.kind.title, risk.kind.why, risk.kind.advice) },
        "locations": [{
            "physicalLocation": { "artifactLocation": { "uri": uri(path) }, "region": region },
        }],
        "partialFingerprints": { "redomaScan/v1": risk.fingerprint },
        "properties": { "risk": risk.level, "origin": origin_name(risk.origin) },
    })
}

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("src/a b#é.py"), "src/a%20b%23%C3%A9.py");
        assert_eq!(uri("/tmp/x.py"), "file:///tmp/x.py");
    }
}
