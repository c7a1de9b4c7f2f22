//! Programs that call tools: neither they nor those who start them take more than their share.

use std::time::{Duration, Instant};

use redoma_tests::server::{ADMIN, Server};
use serde_json::{Value, json};

use crate::World;

fn start(server: &Server, code: &str, tools: &Value) -> redoma_tests::http::Answer {
    let body = json!({ "lang": "bash", "code": code, "tools": tools, "timeout": 10_000 });
    server.post("/v1/exec/programmatic").key(ADMIN).json(&body).send()
}

#[test]
fn a_tools_name_can_not_make_an_answer_huge() {
    let world = World::new();
    let name = format!("t{}", "é".repeat(500_000));
    let answer = start(&world.server, "for i in 1 2 3 4; do t '{}' & done; wait", &json!([{ "name": name }]));
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.body.len() < 10_000);
}

#[test]
fn what_a_program_calls_with_does_not_grow_in_memory() {
    let world = World::new();
    let server = &world.server;
    let before = server.memory_peak();
    // Small as text, large as values.
    let code = "x=$(printf '{\"\":0},%.0s' {1..60000}); for i in 1 2 3 4; do t \"{\\\"a\\\":[${x%,}]}\" & done; wait";
    let answer = start(server, code, &json!([{ "name": "t" }]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let grown = server.memory_peak().saturating_sub(before);
    assert!(grown < 60, "{grown} MiB more");
}

#[test]
fn programs_that_nobody_continues_make_room_again() {
    let world = World::new();
    let server = &world.server;
    let tools = json!([{ "name": "t" }]);
    let mut tokens = Vec::new();
    loop {
        let answer = start(server, "t '{}'", &tools);
        if answer.status == 429 {
            assert!(answer.header("retry-after").is_some());
            break;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        tokens.push((
            answer.json()["continuation_token"].as_str().unwrap().to_owned(),
            answer.json()["tool_calls"][0]["id"].as_str().unwrap().to_owned(),
        ));
        assert!(tokens.len() < 200, "there is no end to it");
    }
    // Each that ends makes room.
    let (token, call) = &tokens[0];
    let results = json!([{ "call_id": call, "result": 1, "is_error": false }]);
    let body = json!({ "continuation_token": token, "tool_results": results });
    let answer = server.post("/v1/exec/programmatic").key(ADMIN).json(&body).send();
    assert_eq!(answer.json()["status"], "completed", "{}", answer.text());
    assert_eq!(start(server, "t '{}'", &tools).status, 200);
    // A second user who takes all that they can get.
    let second = server.key("client", "second");
    let waits = json!({ "lang": "bash", "code": "t '{}'", "tools": tools });
    let mut of_second = 0;
    while server.post("/v1/exec/programmatic").key(&second).json(&waits).send().status == 200 {
        of_second += 1;
    }
    // Others find a place all the same.
    let body = json!({ "lang": "bash", "code": "echo fine", "tools": [] });
    for number in 0..3 {
        let other = server.key("client", &format!("other {number}"));
        let answer = server.post("/v1/exec/programmatic").key(&other).json(&body).send();
        assert_eq!(answer.json()["stdout"], "fine\n", "{} and {of_second}: {}", tokens.len(), answer.text());
        // It keeps a place, so that the next one needs another.
        let answer = server.post("/v1/exec/programmatic").key(&other).json(&waits).send();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[test]
fn an_answer_to_something_else_is_refused_at_once_and_the_program_still_waits() {
    let world = World::new();
    let server = &world.server;
    let waiting = start(server, "t '{}'; echo ended", &json!([{ "name": "t" }])).json();
    let go = |call: &Value| {
        let results = json!([{ "call_id": call, "result": "x", "is_error": false }]);
        let body = json!({ "continuation_token": waiting["continuation_token"], "tool_results": results });
        server.post("/v1/exec/programmatic").key(ADMIN).json(&body).send()
    };
    let begun = Instant::now();
    assert_eq!(go(&json!("call_999")).status, 400);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(go(&waiting["tool_calls"][0]["id"]).json()["stdout"], "\"x\"ended\n");
}

#[test]
fn a_program_that_waits_can_be_cancelled() {
    let world = World::new();
    let server = &world.server;
    let body = json!({ "lang": "bash", "code": "t '{}'", "tools": [{ "name": "t" }] });
    let name = "0b7c1f5e-request";
    let waiting = server
        .post("/v1/exec/programmatic")
        .key(ADMIN)
        .header("X-LibreChat-Code-Request-ID", name)
        .json(&body)
        .send()
        .json();
    let cancel = json!({ "request_id": name });
    let answer = server.post("/v1/exec/programmatic/cancel").key(ADMIN).json(&cancel).send();
    assert_eq!(answer.json()["cancelled"], true);
    let results = json!([{ "call_id": waiting["tool_calls"][0]["id"], "result": 1, "is_error": false }]);
    let body = json!({ "continuation_token": waiting["continuation_token"], "tool_results": results });
    assert_eq!(server.post("/v1/exec/programmatic").key(ADMIN).json(&body).send().status, 404);
}
