//! Requests whose head is abused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redoma_tests::http::exchange;
use redoma_tests::server::{ADMIN, Server};

use crate::{World, is_refused};

/// Whatever comes back, as text: it may be no HTTP.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The connection stays open: a server that sees its end may drop a request that it would have answered.
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count) = stream.read(&mut piece) {
        if count == 0 || answer.len() > 1 << 20 {
            break;
        }
        answer.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_abused_head_is_refused() {
    let world = World::new();
    let server = &world.server;
    let key = format!("X-API-Key: {ADMIN}\r\n");
    let get = |more: &str| {
        format!("GET /api/v1/sessions HTTP/1.1\r\nHost: x\r\n{key}{more}Connection: close\r\n\r\n")
    };
    assert_eq!(exchange(server.address, get("").as_bytes()).unwrap().status, 200);
    // The same way, so that silence below means something.
    assert!(raw(server, get("").as_bytes()).contains("sessions\":"));
    let many = (0..500).map(|number| format!("X-{number}: a\r\n")).collect::<Vec<_>>().concat();
    for (what, bytes) in [
        ("a megabyte of a header", get(&format!("X-Long: {}\r\n", "a".repeat(1 << 20))).into_bytes()),
        ("a megabyte of a name", get(&format!("X-{}: a\r\n", "a".repeat(1 << 20))).into_bytes()),
        ("500 headers", get(&many).into_bytes()),
        (
            "a megabyte of a path",
            format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20)).into_bytes(),
        ),
        (
            "a megabyte of a method",
            format!("{} / HTTP/1.1\r\nHost: x\r\n\r\n", "A".repeat(1 << 20)).into_bytes(),
        ),
        (
            "a megabyte of a query",
            format!("GET /?{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20)).into_bytes(),
        ),
        ("a zero byte in a value", get("X-A: a\0b\r\n").into_bytes()),
        ("a zero byte in a name", get("X\0A: ab\r\n").into_bytes()),
        ("a carriage return in a value", get("X-A: a\rb\r\n").into_bytes()),
        ("a space in a name", get("X A: b\r\n").into_bytes()),
        ("no name", get(": b\r\n").into_bytes()),
        ("no colon", get("XA\r\n").into_bytes()),
        ("a folded header", get("X-A: a\r\n b\r\n").into_bytes()),
        ("a zero byte in the path", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a space in the path", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("no version", b"GET /\r\n\r\n".to_vec()),
        ("no path", b"GET\r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /healthz\r\n".to_vec()),
        ("HTTP/3", b"GET /healthz HTTP/3.0\r\nHost: x\r\n\r\n".to_vec()),
        ("HTTP/1.10", b"GET /healthz HTTP/1.10\r\nHost: x\r\n\r\n".to_vec()),
        ("the beginning of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        (
            "the beginning of TLS",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec(),
        ),
        ("noise", (0..4096u32).map(|number| u8::try_from(number * 7919 % 251).unwrap()).collect()),
        ("only line ends", b"\r\n".repeat(100_000)),
        ("nothing", Vec::new()),
    ] {
        let answer = raw(server, &bytes);
        let is_refused =
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4");
        assert!(is_refused, "{what}: {answer:?}");
        assert!(!answer.contains("sessions\":"), "{what}");
    }
    world.assert_sound();
}

#[test]
fn strange_methods_and_targets_do_nothing() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}");
    for method in [
        "TRACE", "TRACK", "CONNECT", "OPTIONS", "PUT", "COPY", "MOVE", "PROPFIND", "DEBUG", "get", "Delete",
        "X-Y_Z", "POST",
    ] {
        let answer = server.request(method, &path).key(ADMIN).header("X-Mark", "reflected-mark").send();
        assert!(is_refused(&answer), "{method}: {}", answer.status);
        assert!(
            !answer.text().contains("reflected-mark") && !answer.text().contains(ADMIN),
            "{method} tells what was sent"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{method}");
    }
    // Nothing makes another method or path of a request, as some proxies and frameworks do.
    for header in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        assert_eq!(server.get(&path).key(ADMIN).header(header, "DELETE").send().status, 200);
    }
    for header in ["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix"] {
        let answer = server.get("/healthz").key(ADMIN).header(header, "/api/v1/keys").send();
        assert!(answer.text().contains("ok"), "{header}");
    }
    assert_eq!(server.get(&path).key(ADMIN).send().status, 200, "it was deleted");
    // Where requests say that they come from counts for nothing.
    for header in
        ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded-User", "Remote-User", "X-Remote-User"]
    {
        let answer = server.get("/api/v1/keys").header(header, "127.0.0.1").send();
        assert_eq!(answer.status, 401, "{header}");
    }
    let key = format!("X-API-Key: {ADMIN}\r\nConnection: close\r\n\r\n");
    for (what, head) in [
        ("no host", format!("GET {path} HTTP/1.1\r\n{key}")),
        ("two hosts", format!("GET {path} HTTP/1.1\r\nHost: a\r\nHost: b\r\n{key}")),
        ("a strange host", format!("GET {path} HTTP/1.1\r\nHost: a/../b?c#d@e\r\n{key}")),
        ("an absolute target", format!("GET http://evil.example{path} HTTP/1.1\r\nHost: x\r\n{key}")),
        ("another scheme", format!("GET file://{path} HTTP/1.1\r\nHost: x\r\n{key}")),
        ("an authority", format!("GET evil.example:80 HTTP/1.1\r\nHost: x\r\n{key}")),
        ("a star", format!("OPTIONS * HTTP/1.1\r\nHost: x\r\n{key}")),
        ("HTTP/1.0", format!("GET {path} HTTP/1.0\r\n{key}")),
    ] {
        let answer = raw(server, head.as_bytes());
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(400);
        assert!(status < 500, "{what}: {answer}");
        assert!(!answer.to_ascii_lowercase().contains("evil.example"), "{what}: {answer}");
    }
    world.assert_sound();
}

#[test]
fn a_request_id_is_only_repeated_if_it_is_harmless() {
    let world = World::new();
    let server = &world.server;
    let ask = |id: &[u8]| {
        let bytes =
            [b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: ", id, b"\r\n\r\n"]
                .concat();
        exchange(server.address, &bytes).unwrap()
    };
    let given = |id: &[u8]| ask(id).header("x-request-id").map(ToOwned::to_owned);
    assert_eq!(given(b"abc-DEF_1.2"), Some("abc-DEF_1.2".into()));
    for id in [
        &b"<script>alert(1)</script>"[..],
        b"a b",
        b"a;b",
        b"a\"b",
        b"\xff\xfe",
        b"a\tb",
        b"%0d%0a",
        b"{}",
        b"a,b",
        b"\x1b[31m",
        b"",
        &[b'a'; 65],
    ] {
        // Refused, or given one of ours.
        let answer = ask(id);
        let repeated =
            answer.header("x-request-id").is_some_and(|own| !id.is_empty() && own.as_bytes() == id);
        assert!(!repeated, "{id:?}");
    }
    let forged = "x\",\"level\":\"ERROR\",\"message\":\"forged-entry";
    server.get("/v1/files/x").key(ADMIN).header("X-Request-Id", forged).header("User-Agent", forged).send();
    server.get("/v1/files/%22%2c%22message%22:%22forged-entry").key(ADMIN).send();
    let log = server.log();
    for line in log.lines() {
        let entry: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("not a log line: {line}"));
        assert_ne!(entry["message"], "forged-entry");
    }
}
