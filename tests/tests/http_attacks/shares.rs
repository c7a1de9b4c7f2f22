//! One user who takes what all users share: the server's memory, its tables, its connections. The oracles are the server's
//! memory and descriptors as Linux counts them, and the answers that another user gets meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redoma_tests::http::Request;
use redoma_tests::server::Server;
use serde_json::json;

use crate::World;

/// Sends the same request again and again on one connection, and reads all answers. Gives how many were a 200.
fn flood(server: &Server, count: usize, request: impl Fn(usize) -> Request) -> usize {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut reading = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut seen, mut good, mut rest) = (0, 0, Vec::new());
        let mut piece = vec![0; 64 << 10];
        while seen < count {
            match reading.read(&mut piece) {
                Ok(length) if length > 0 => rest.extend_from_slice(&piece[..length]),
                _ => break,
            }
            let line = b"HTTP/1.1 ";
            let mut at = 0;
            while let Some(found) = rest[at..].windows(12).position(|window| window.starts_with(line)) {
                at += found + 12;
                seen += 1;
                good += usize::from(&rest[at - 3..at] == b"200");
            }
            let keep = rest.len().saturating_sub(11).max(at);
            rest.drain(..keep);
        }
        good
    });
    for number in 0..count {
        let bytes = request(number).bytes();
        let bytes = String::from_utf8(bytes).unwrap().replace("Connection: close\r\n", "");
        stream.write_all(bytes.as_bytes()).unwrap();
    }
    reader.join().unwrap()
}

#[test]
fn a_flood_of_conversations_leaves_those_of_others() {
    let world = World::new();
    let server = &world.server;
    let (victim, attacker) = (server.key("user", "victim"), server.key("user", "attacker"));
    let cell = |code: &str| json!({ "lang": "py", "code": code, "runtime_session_hint": "talk" });
    let begun = server.exec(&victim, &cell("x = 41")).json();
    assert_eq!(begun["runtime_status"], "new", "{begun}");
    let sessions = || {
        let page = server.get("/api/v1/sessions?limit=100").key(&attacker).send().json();
        page["sessions"].as_array().unwrap().len()
    };
    // A language that there is not: nothing is run, and no rate counts it.
    let answered = flood(server, 10_001, |number| {
        let hint = format!("hint {number}");
        let body = json!({ "lang": "cobol", "code": "x", "runtime_session_hint": hint });
        server.post("/v1/exec").key(&attacker).json(&body)
    });
    assert_eq!(answered, 10_001);
    let next = server.exec(&victim, &cell("print(x + 1)")).json();
    assert_eq!((&next["stdout"], &next["runtime_status"]), (&json!("42\n"), &json!("reused")), "{next}");
    assert_eq!(sessions(), 0, "requests that were refused have opened sessions");
    world.assert_sound();
}
