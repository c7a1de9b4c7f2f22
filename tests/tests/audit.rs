//! The audit of a whole server: commands beside it, the API, kills, and what was changed while it was down.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, text_of};
use serde_json::Value;

/// Python with its standard library only: a server is ready sooner so.
const QUICK: &str = "[profiles.default]\npreload = []\n[engine]\npool_floor = 1\n";

fn home() -> Home {
    let home = Home::new(Mode::available()[0]);
    home.configure(QUICK);
    home
}

/// Exit code, output, errors.
fn audit(home: &Home, arguments: &[&str]) -> (i32, String, String) {
    let all: Vec<_> = ["audit"].iter().chain(arguments).copied().collect();
    text_of(&mut home.command(&all))
}

fn lines(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let (code, out, errors) = audit(home, arguments);
    assert_eq!(code, 0, "{errors}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["kind"].as_str()).collect()
}

fn segment(home: &Home) -> PathBuf {
    home.path().join("audit/000000000001.jsonl")
}

fn list(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/api/v1/audit{query}")).key(ADMIN).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn starts_and_stops_are_written_down_and_verify() {
    let home = home();
    let mut server = home.serve();
    let head = serde_json::from_str::<Value>(
        server.log().lines().find(|line| line.contains("the audit's head")).expect("it is logged"),
    )
    .unwrap()["head"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(kinds(&lines(&home, &["tail", "--json"])), ["segment", "server_started"]);
    assert_eq!(server.stop(), Some(0));
    assert_eq!(kinds(&lines(&home, &["tail", "--json"])), ["segment", "server_started", "server_stopped"]);
    let sound = lines(&home, &["verify", "--json", "--head", &head]).remove(0);
    assert_eq!(
        (&sound["sound"], &sound["keyed"], &sound["records"]),
        (&true.into(), &true.into(), &3.into())
    );
    let (_, table, _) = audit(&home, &["tail", "--kind", "server_stopped"]);
    assert!(table.contains("server_stopped") && table.lines().count() == 1, "{table}");
    let other = format!("2:{}", "0".repeat(64));
    let (code, told, _) = audit(&home, &["verify", "--head", &other]);
    assert!(code == 1 && told.contains("record 2"), "{code} {told}");
}

#[test]
fn what_was_changed_is_told_by_verify_and_by_the_server_that_starts() {
    let home = home();
    home.serve().stop();
    let text = std::fs::read_to_string(segment(&home)).unwrap();
    std::fs::write(segment(&home), text.replacen("server_started", "server_startet", 1)).unwrap();
    let (code, told, _) = audit(&home, &["verify"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("000000000001.jsonl, line 2, byte") && told.contains("record 2: "), "{told}");
    let server = home.serve();
    assert!(server.log().contains("the audit is not as it was written"), "{}", server.log());
    assert_eq!(list(&server, "?kind=segment&order=oldest")["records"][1]["number"], 2);
    let answer = server.post("/api/v1/audit/verify").key(ADMIN).send();
    assert_eq!((answer.status, &answer.json()["sound"]), (200, &false.into()));
}

#[test]
fn a_killed_server_leaves_a_sound_audit() {
    let home = home();
    for _ in 0..3 {
        let mut server = home.serve();
        server.kill();
        assert_eq!(audit(&home, &["verify"]).0, 0);
    }
    assert_eq!(
        kinds(&lines(&home, &["tail", "--json"])),
        ["segment", "server_started", "server_started", "server_started"]
    );
}

#[test]
fn the_api_is_for_admins_and_pages_through_records() {
    let home = home();
    for _ in 0..4 {
        home.serve().stop();
    }
    let server = home.serve();
    let user = server.key("user", "ana");
    for (method, path) in [
        ("GET", "/api/v1/audit"),
        ("GET", "/api/v1/audit/stream"),
        ("GET", "/api/v1/audit/export"),
        ("POST", "/api/v1/audit/verify"),
    ] {
        assert_eq!(server.request(method, path).key(&user).send().status, 403, "{path}");
        assert_eq!(server.request(method, path).send().status, 401, "{path}");
    }
    let first = list(&server, "?limit=4");
    let seq = |value: &Value| value["seq"].as_u64().unwrap();
    let newest: Vec<_> = first["records"].as_array().unwrap().iter().map(seq).collect();
    assert!(newest.windows(2).all(|pair| pair[0] == pair[1] + 1) && newest.len() == 4, "{newest:?}");
    let next = list(&server, &format!("?limit=4&after={}", first["next"]));
    assert_eq!(seq(&next["records"][0]), newest[3] - 1);
    let starts = list(&server, "?kind=server_started&order=oldest&since=1h");
    assert_eq!(starts["records"].as_array().unwrap().len(), 5);
    assert_eq!(list(&server, "?user=nobody")["records"], Value::Array(Vec::new()));
    for bad in ["?kind=nonsense", "?since=yesterday"] {
        assert_eq!(server.get(&format!("/api/v1/audit{bad}")).key(ADMIN).send().status, 400, "{bad}");
    }
    let verified = server.post("/api/v1/audit/verify").key(ADMIN).send().json();
    assert_eq!(verified["sound"], true, "{verified}");
}

#[test]
fn what_is_exported_is_what_was_written() {
    let home = home();
    home.serve().stop();
    let server = home.serve();
    let exported = server.get("/api/v1/audit/export").key(ADMIN).send().text();
    // With the record of that itself.
    let written = std::fs::read_to_string(segment(&home)).unwrap();
    assert_eq!(exported, written);
    assert_eq!(audit(&home, &["export"]).1, written);
    let table = server.get("/api/v1/audit/export?format=csv&kind=server_started").key(ADMIN).send().text();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("seq,time,kind,client,user,"), "{table}");
    let file = home.path().join("out.csv");
    assert_eq!(audit(&home, &["export", "--format", "csv", "--out", file.to_str().unwrap()]).0, 0);
    let written = std::fs::read_to_string(segment(&home)).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), written.lines().count() + 1);
}

#[test]
fn who_watches_is_told_what_was_and_what_comes() {
    let home = home();
    let server = home.serve();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request =
        format!("GET /api/v1/audit/stream?after=1 HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let event = lines.find(|line| line.starts_with("data: ")).unwrap();
    assert!(event.contains("\"server_started\""), "{event}");
}

#[test]
fn an_audit_can_be_followed_beside_the_server() {
    let home = home();
    home.serve().stop();
    let mut command = home.command(&["audit", "tail", "--follow", "--json", "-n", "1"]);
    let mut following = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap()["kind"].clone();
    assert_eq!(next(), "server_stopped");
    let server = home.serve();
    assert_eq!(next(), "server_started");
    drop(server);
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn a_server_without_an_audit_says_so() {
    let home = home();
    home.configure(&format!("{QUICK}[audit]\nenabled = false\n"));
    let server = home.serve();
    assert!(server.log().contains("the audit is switched off"), "{}", server.log());
    assert_eq!(server.get("/api/v1/audit").key(ADMIN).send().status, 404);
    assert!(!home.path().join("audit").exists());
    assert_eq!(audit(&home, &["tail"]).0, 125);
}
