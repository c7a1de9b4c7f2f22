//! Attacks over HTTP, as somebody makes them who reaches the server's port, with or without a key of their own. The
//! oracles are outside of what is attacked: files planted on the host, the shape of the storage folder, the process list,
//! the server's memory, its log, and the things of somebody else, which must be as they were.
//!
//! | file | who attacks, and how |
//! |---|---|
//! | `traversal.rs` | ids and names that climb out of their folder, in every encoding |
//! | `ownership.rs` | somebody else's ids, in every route |
//! | `identity.rs` | those who are not who they say: keys, user ids, strange origins |
//! | `tokens.rs` | tokens that are forged, stale, or about nobody |
//! | `content.rs` | files that would like to run in a browser, or are not what their names say |
//! | `bodies.rs` | requests that are huge, malformed, or both |
//! | `headers.rs` | requests whose head is abused |
//! | `slow.rs` | clients that send slowly, do not read, leave, or come in thousands |
//! | `shares.rs` | one user who takes what all users share |
//! | `limits.rs` | quotas, and what programs leave behind |
//! | `programs.rs` | programs that call tools, and those who start many |
//! | `signer.rs` | makes tokens, good and forged |
//!
//! All in the mode that is there: what a request may do does not depend on who runs the server.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bodies;
mod content;
mod headers;
mod identity;
mod limits;
mod ownership;
mod programs;
mod shares;
mod signer;
mod slow;
mod tokens;
mod traversal;

use std::path::Path;
use std::process::Command;

use redoma_tests::Mode;
use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{Home, Server};
use serde_json::Value;

/// So much memory the server may have held at most, in MiB, whatever was done to it. It holds about 25 when idle, in a
/// debug build.
const MOST_MEMORY: u64 = 400;

/// A server with nothing loaded ahead: these tests are not about speed.
struct World {
    home: Home,
    server: Server,
}

impl World {
    fn new() -> Self {
        Self::with("", |command| command)
    }

    fn with(config: &str, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mode = Mode::available().into_iter().next().expect("one of the modes");
        let home = Home::new(mode);
        home.configure(&format!("{config}\n[profiles.default]\npreload = []\n"));
        let server = home.serve_with(change);
        server.wait_until_ready();
        Self { home, server }
    }

    /// What must hold after everything that was tried.
    fn assert_sound(&self) {
        assert_eq!(self.server.get("/healthz").send().status, 200);
        let log = self.server.log();
        let panic = log.lines().find(|line| line.contains("panicked"));
        assert!(panic.is_none(), "the server panicked: {panic:?}");
        let peak = self.server.memory_peak();
        assert!(peak < MOST_MEMORY, "the server has held {peak} MiB");
        let misshapen = misshapen(&self.home.storage());
        assert!(misshapen.is_empty(), "not of the shape <user>/<session>/<uuid>.<ext>: {misshapen:?}");
    }
}

/// What is in the storage folder that is no `<user>/<session>/<uuid>.<ext>`.
fn misshapen(storage: &Path) -> Vec<String> {
    fn walk(folder: &Path, parts: &mut Vec<String>, wrong: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            parts.push(entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().unwrap();
            let is_right = match parts.as_slice() {
                [top] if top == ".incoming" => kind.is_dir(),
                [user] => kind.is_dir() && is_plain(user) && user.len() <= 64,
                [top, number] if top == ".incoming" => {
                    kind.is_dir() && u8::from_str_radix(number, 16).is_ok()
                }
                [top, ..] if top == ".incoming" => false,
                [_, session] => kind.is_dir() && is_plain(session) && session.len() == 21,
                [_, _, name] => kind.is_file() && is_blob(name),
                _ => false,
            };
            if !is_right {
                wrong.push(parts.join("/"));
            }
            if kind.is_dir() {
                walk(&entry.path(), parts, wrong);
            }
            parts.pop();
        }
    }
    let mut wrong = Vec::new();
    walk(storage, &mut Vec::new(), &mut wrong);
    wrong
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn is_blob(name: &str) -> bool {
    name.split_once('.').is_some_and(|(uuid, extension)| {
        uuid.len() == 36
            && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            && (1..=10).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

/// An upload of one file through the native API; its id.
fn upload(server: &Server, key: &str, session: &str, name: &str, content: &[u8]) -> String {
    let answer = server
        .post(&format!("/api/v1/sessions/{session}/files"))
        .key(key)
        .form(&[], &[(name, content)])
        .send();
    assert_eq!(answer.status, 201, "{name}: {}", answer.text());
    text(&answer.json()["files"][0]["id"])
}

fn download(server: &Server, key: &str, session: &str, file: &str) -> Answer {
    server.get(&format!("/api/v1/sessions/{session}/files/{file}/content")).key(key).send()
}

/// Runs a program in a session of the native API.
fn run(server: &Server, key: &str, session: &str, language: &str, code: &str) -> Value {
    let body = serde_json::json!({ "language": language, "code": code });
    let answer = server.post(&format!("/api/v1/sessions/{session}/executions")).key(key).json(&body).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}")).to_owned()
}

/// Whether the server has answered that it does not take this.
fn is_refused(answer: &Answer) -> bool {
    (400..500).contains(&answer.status)
}

/// A request that must be refused, and without a server error.
#[track_caller]
fn assert_refused(what: &str, request: &Request) -> Answer {
    let answer = request.send();
    assert!(is_refused(&answer), "{what}: {} {}", answer.status, answer.text());
    answer
}
