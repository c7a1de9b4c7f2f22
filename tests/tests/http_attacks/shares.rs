//! One user who takes what all users share: the server's memory, its tables, its connections. The oracles are the server's
//! memory and descriptors as Linux counts them, and the answers that another user gets meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, Request, chunked, read_answer};
use redoma_tests::server::{ADMIN, Server};
use redoma_tests::websocket::WebSocket;
use serde_json::{Value, json};

use crate::slow::until;
use crate::{World, text, upload};

/// How long another user's request may take, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// The answer to this request, which must come in time.
#[track_caller]
fn in_time(what: &str, server: &Server, request: &Request) -> Answer {
    let mut stream = connect(server);
    stream.write_all(&request.bytes()).unwrap_or_else(|error| panic!("{what}: {error}"));
    read_answer(&mut stream).unwrap_or_else(|error| {
        let log = server.log();
        let end: Vec<_> = log.lines().rev().take(5).collect();
        panic!("{what}: {error}: {end:?}")
    })
}

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

/// Cells that wait behind each other; the connections that they came on.
fn cells(server: &Server, key: &str, session: &str, count: usize, body: &[u8]) -> Vec<TcpStream> {
    let head = format!(
        "POST /api/v1/sessions/{session}/executions HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let bytes = [head.as_bytes(), &chunked(body, 1 << 16)].concat();
    let send = |_| {
        let mut stream = connect(server);
        // Not all of it may be taken.
        let _ = stream.write_all(&bytes);
        stream
    };
    (0..count).map(send).collect()
}

fn waiting(server: &Server, key: &str, session: &str) -> u64 {
    let kernel = server.get(&format!("/api/v1/sessions/{session}/kernel")).key(key).send().json();
    kernel["waiting"].as_u64().unwrap_or_default()
}

/// A program of `size` bytes.
fn program(size: usize) -> Value {
    json!({ "language": "py", "code": format!("print(6 * 7)\n#{}", "x".repeat(size)) })
}

#[test]
fn bodies_of_one_user_leave_room_for_those_of_others() {
    let world = World::new();
    let server = &world.server;
    let (victim, attacker) = (server.key("user", "victim"), server.key("user", "attacker"));
    let assert_victim_runs = |what: &str, size: usize| {
        let request = server.post("/api/v1/executions").key(&victim).json(&program(size));
        let answer = in_time(what, server, &request);
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert_eq!(answer.json()["stdout"]["text"], "42\n", "{what}");
    };
    // Small programs in bodies that are mostly padding, of a length that is not said.
    let session = server.session(&attacker);
    let mut padded = json!({ "language": "py", "code": "import time; time.sleep(100)" }).to_string();
    padded.push_str(&" ".repeat(300 << 10));
    let held = cells(server, &attacker, &session, 20, padded.as_bytes());
    assert!(until(PATIENCE, || waiting(server, &attacker, &session) >= 15), "they do not wait");
    assert_victim_runs("padded cells", 300 << 10);
    drop(held);
    assert!(until(PATIENCE, || waiting(server, &attacker, &session) == 0));
    // Bodies that stop before their end.
    let begun: Vec<_> = (0..40)
        .map(|_| {
            let start = format!(
                "POST /v1/exec HTTP/1.1\r\nHost: x\r\nX-API-Key: {attacker}\r\nContent-Length: 8000000\r\n\r\n"
            );
            let mut stream = connect(server);
            let _ = stream.write_all(start.as_bytes());
            let _ = stream.write_all(&vec![b' '; 7 << 20]);
            stream
        })
        .collect();
    assert_victim_runs("unfinished bodies", 2 << 20);
    drop(begun);
    // Large programs: their owner is told that it is enough.
    let large = program(2 << 20).to_string().replace("print(6 * 7)", "import time; time.sleep(100)");
    let mut held = cells(server, &attacker, &session, 60, large.as_bytes());
    assert_victim_runs("large cells", 2 << 20);
    let refused = held.iter_mut().any(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        read_answer(stream).is_ok_and(|answer| answer.status == 429)
    });
    assert!(refused, "120 MiB of programs of one user wait");
    drop(held);
    world.assert_sound();
}

#[test]
fn unread_downloads_of_one_user_leave_room_for_those_of_others() {
    let world = World::new();
    let server = &world.server;
    let (victim, attacker) = (server.key("user", "victim"), server.key("user", "attacker"));
    let content = vec![b'x'; 8 << 20];
    let stored = |key: &str| {
        let session = server.session(key);
        let file = upload(server, key, &session, "big.txt", &content);
        server.get(&format!("/api/v1/sessions/{session}/files/{file}/content")).key(key)
    };
    let (unread, read) = (stored(&attacker).bytes(), stored(&victim));
    let mut held = Vec::new();
    loop {
        let mut stream = connect(server);
        stream.write_all(&unread).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        if status.ends_with(b"429") {
            break;
        }
        assert!(status.ends_with(b"200"), "{}", String::from_utf8_lossy(&status));
        held.push(stream);
        assert!(held.len() < 900, "there is no end to it");
    }
    assert!(held.len() > 300, "only {} downloads at once", held.len());
    let answer = in_time("unread downloads", server, &read);
    assert!(answer.status == 200 && answer.body == content);
    drop(held);
    assert_eq!(in_time("after them", server, &stored(&attacker)).status, 200);
    world.assert_sound();
}

/// A message whose last bytes do not come: head and most of what it announces.
fn unfinished(socket: &mut WebSocket) {
    let mut frame = vec![0x81, 0xff];
    frame.extend_from_slice(&(8_000_000u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(7 << 20, b' ');
    socket.send_raw(&frame);
}

#[test]
fn websockets_of_one_user_leave_room_for_those_of_others() {
    let world = World::new();
    let server = &world.server;
    let (victim, attacker) = (server.key("user", "victim"), server.key("user", "attacker"));
    let native = |key: &str| {
        let session = server.session(key);
        server.get(&format!("/api/v1/sessions/{session}/executions/ws")).key(key)
    };
    let kernel = server.post("/jupyter/api/kernels").key(&attacker).json(&json!({})).send().json();
    let channels =
        server.get(&format!("/jupyter/api/kernels/{}/channels", text(&kernel["id"]))).key(&attacker);
    let request = native(&attacker);
    let before = server.memory();
    let held: Vec<_> = (0..40)
        .map(|number| {
            let mut socket =
                WebSocket::open(if number % 2 == 0 { request.clone() } else { channels.clone() });
            unfinished(&mut socket);
            socket
        })
        .collect();
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 150, "40 unfinished messages take {grown} MiB");
    let mut socket = WebSocket::open(native(&victim));
    socket.set_patience(PATIENCE);
    socket.say(&program(2 << 20));
    let last = std::iter::from_fn(|| Some(socket.hear()))
        .find(|message| ["result", "error"].iter().any(|kind| message["event"] == *kind));
    let last = last.unwrap();
    assert_eq!(last["data"]["stdout"]["text"], "42\n", "{last}");
    drop((held, socket));
    // Many that say nothing.
    let mut idle = Vec::new();
    let refused = loop {
        match WebSocket::try_open(request.clone()) {
            Ok(socket) => idle.push(socket),
            Err(answer) => break answer,
        }
        assert!(idle.len() < 400, "there is no end to it");
    };
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    let mut socket = WebSocket::open(native(&victim));
    socket.say(&program(10));
    assert_eq!(socket.hear()["event"], "started");
    drop(idle);
    world.assert_sound();
}

#[test]
fn idle_connections_delay_nobody_else() {
    let world = World::with("[server]\nconnections = 100", |command| command);
    let server = &world.server;
    let (victim, attacker) = (server.key("user", "victim"), server.key("user", "attacker"));
    let assert_others_are_served = |what: &str| {
        let begun = Instant::now();
        for request in [
            server.get("/healthz"),
            server.get("/readyz"),
            server.get("/metrics").key(ADMIN),
            server.get("/api/v1/sessions").key(ADMIN),
            server.get("/api/v1/sessions").key(&victim),
        ] {
            let answer = in_time(what, server, &request);
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        }
        // A connection without a request may take 15 s; the others do not wait for that.
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: others waited {:?}", begun.elapsed());
    };
    // Without a key.
    let idle: Vec<_> = (0..300).map(|_| connect(server)).collect();
    assert_others_are_served("idle connections without a key");
    assert!(server.connections() < 150, "{} connections", server.connections());
    drop(idle);
    // With one.
    let mut greeting = server.get("/api/v1/sessions").key(&attacker).bytes();
    greeting = String::from_utf8(greeting).unwrap().replace("Connection: close\r\n", "").into_bytes();
    let idle: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = connect(server);
            let _ = stream.write_all(&greeting);
            let _ = stream.read(&mut [0; 4096]);
            stream
        })
        .collect();
    assert_others_are_served("idle connections with a key");
    drop(idle);
    // Busy ones of many users, until there is room for no further one.
    let users: Vec<_> = (0..12)
        .map(|number| {
            let key = server.key("user", &format!("busy {number}"));
            (format!("/api/v1/sessions/{}/executions/ws", server.session(&key)), key)
        })
        .collect();
    let mut busy = Vec::new();
    for (path, key) in users {
        while let Ok(socket) = WebSocket::try_open(server.get(&path).key(&key)) {
            busy.push(socket);
        }
    }
    assert!(busy.len() >= 90, "only {} are busy", busy.len());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(in_time("busy connections", server, &server.get(path)).status, 200);
    }
    for path in ["/metrics", "/api/v1/sessions"] {
        assert_eq!(in_time("busy connections", server, &server.get(path).key(ADMIN)).status, 200);
    }
    // Logins that fail hold no connection of the reserve: after ten failures an answer would wait for 3 s.
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(in_time("guesses", server, &server.get("/metrics").key("rdm_guess")).status, 401);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "20 failed logins took {:?}", begun.elapsed());
    drop(busy);
    assert!(until(PATIENCE, || server.get("/api/v1/sessions").key(&victim).send().status == 200));
    assert!(until(PATIENCE, || server.connections() <= 1), "{} are left", server.connections());
    let before = server.descriptors();
    let few: Vec<_> = (0..10).map(|_| connect(server)).collect();
    assert!(until(PATIENCE, || server.connections() >= 10));
    let taken = server.descriptors() - before;
    assert!(taken < 15, "10 connections take {taken} descriptors");
    drop(few);
    world.assert_sound();
}

/// Empty files cost their user no bytes, but the host an inode each; and while they are stored, no descriptor each.
#[test]
fn many_empty_files_take_neither_the_hosts_inodes_nor_the_servers_descriptors() {
    let world = World::with("[storage]\nuser_files = 4000\n", |command| command);
    let server = &world.server;
    server.wait_until_ready();
    let (ana, ben) = (server.key("user", "ana"), server.key("user", "ben"));
    let run = |key: &str, code: &str| {
        let body = json!({ "language": "py", "code": code });
        server.post("/api/v1/executions").key(key).json(&body).send().json()
    };
    let many = "for n in range(3000): open(f'{n}', 'w').close()";
    let before = server.descriptors();
    let is_done = AtomicBool::new(false);
    let (answers, peak) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| {
            let mut peak = 0;
            while !is_done.load(Ordering::Relaxed) {
                peak = peak.max(server.descriptors());
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let answers = catch_unwind(AssertUnwindSafe(|| [run(&ana, many), run(&ana, many), run(&ana, many)]));
        is_done.store(true, Ordering::Relaxed);
        (answers.unwrap_or_else(|failed| resume_unwind(failed)), peak.join().unwrap())
    });
    assert!(peak < before + 200, "{peak} descriptors while files were stored, {before} before");
    let kept = |answer: &Value| {
        answer["files"].as_array().unwrap().len() as u64 + answer["more_files"].as_u64().unwrap_or(0)
    };
    assert_eq!(answers.each_ref().map(kept), [3000, 1000, 0]);
    let refused = answers[2]["refused_files"].to_string();
    assert!(refused.contains("too many files"), "{refused}");
    assert_eq!(kept(&run(&ben, "open('own', 'w').close()")), 1, "another user's quota is their own");
    world.assert_sound();
}
