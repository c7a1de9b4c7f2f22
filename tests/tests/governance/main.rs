//! What turns a shell into an interpreter that can be trusted: who may do what, what is looked for before anything runs, and
//! what is written down about it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that can't go on has failed, and one that can't begin says so"
)]

mod policy;
mod profiles;
mod readers;
mod records;

use redoma_tests::Mode;
use redoma_tests::http::Answer;
use redoma_tests::server::{ADMIN, Home, Server};
use serde_json::{Value, json};

/// Python with its standard library only: a server is ready sooner so.
const QUICK: &str = "[engine]\npool_floor = 1\n[profiles.default]\npreload = []\n";

fn home(settings: &str) -> Home {
    let home = Home::new(Mode::available()[0]);
    home.configure(&format!("{QUICK}{settings}"));
    home
}

fn start(settings: &str) -> (Home, Server) {
    let home = home(settings);
    let server = home.serve();
    server.wait_until_ready();
    (home, server)
}

fn new_key(server: &Server, body: &Value) -> (String, String) {
    let answer = server.post("/api/v1/keys").key(ADMIN).json(body).send();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let key = answer.json();
    (key["id"].as_str().unwrap().to_owned(), key["secret"].as_str().unwrap().to_owned())
}

fn new_session(server: &Server, key: &str, body: &Value) -> Answer {
    server.post("/api/v1/sessions").key(key).json(body).send()
}

fn run(server: &Server, key: &str, language: &str, code: &str) -> Value {
    let body = json!({ "language": language, "code": code });
    let answer = server.post("/api/v1/executions").key(key).json(&body).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn stderr(execution: &Value) -> &str {
    execution["stderr"]["text"].as_str().unwrap()
}
