//! Requests that are huge, malformed, or both.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, chunked, exchange, read_answer};
use redoma_tests::server::{ADMIN, Server};
use serde_json::{Value, json};

use crate::{World, assert_refused, is_refused, run, text};

/// Every route that takes JSON, with a body that it takes.
fn json_routes(session: &str) -> Vec<(&'static str, String, Value)> {
    let run = json!({ "language": "py", "code": "print(1)", "arguments": ["a"], "timeout_ms": 1000, "stateful": false });
    let cell = json!({ "language": "py", "code": "print(1)", "timeout_ms": 1000, "stateful": true });
    vec![
        (
            "POST",
            "/v1/exec".into(),
            json!({ "lang": "py", "code": "print(1)", "user_id": "ana", "session_id": session, "timeout": 1000,
                "files": [{ "id": "AAAAAAAAAAAAAAAAAAAAA", "name": "a.txt", "storage_session_id": session }] }),
        ),
        (
            "POST",
            "/v1/exec/programmatic".into(),
            json!({ "lang": "py", "code": "print(1)", "tools": [{ "name": "t" }], "timeout": 1000 }),
        ),
        ("POST", "/v1/exec/programmatic/cancel".into(), json!({ "request_id": "r" })),
        ("POST", "/api/v1/sessions".into(), json!({ "name": "n", "profile": "default", "retention": "1h" })),
        ("PATCH", format!("/api/v1/sessions/{session}"), json!({ "name": "n", "retention": "1h" })),
        ("POST", format!("/api/v1/sessions/{session}/executions"), run.clone()),
        ("POST", format!("/api/v1/sessions/{session}/executions"), cell),
        ("POST", format!("/api/v1/sessions/{session}/undo"), json!({ "cells": 0 })),
        ("POST", format!("/api/v1/sessions/{session}/branch"), json!({ "name": "n" })),
        ("POST", "/api/v1/executions".into(), run),
        ("POST", "/api/v1/keys".into(), json!({ "role": "client", "client": "c", "label": "l" })),
    ]
}

#[test]
fn a_body_that_is_not_what_is_expected_is_told_so() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let broken: Vec<(&str, Vec<u8>)> = vec![
        ("empty", b"".into()),
        ("a space", b" ".into()),
        ("not JSON", b"lang=py&code=1".into()),
        ("cut off", b"{\"lang\":\"py\",\"code\":\"pr".into()),
        ("two", b"{}{}".into()),
        ("a list", b"[]".into()),
        ("null", b"null".into()),
        ("a number", b"1e400".into()),
        ("text", b"\"py\"".into()),
        ("deep lists", deep("[", "]").into()),
        ("deep lists without an end", "[".repeat(100_000).into()),
        ("deep objects", deep("{\"a\":", "}").into()),
        ("deep in an unknown field", format!("{{\"x\":{}}}", deep("[", "]")).into()),
        ("not UTF-8", b"{\"lang\":\"py\",\"code\":\"\xff\xfe\"}".into()),
        ("half of a letter", b"{\"lang\":\"py\",\"code\":\"\\ud800\"}".into()),
        ("a zero byte", b"{\"lang\":\"py\",\0\"code\":\"1\"}".into()),
        ("a mark at the beginning", b"\xef\xbb\xbf{}".into()),
        ("keys twice", b"{\"lang\":\"py\",\"lang\":\"js\",\"code\":\"1\",\"code\":\"2\",\"language\":\"py\",\"language\":\"js\",\
            \"request_id\":\"a\",\"request_id\":\"b\",\"name\":\"a\",\"name\":\"b\",\"role\":\"user\",\"role\":\"admin\"}".into()),
    ];
    for (method, path, good) in json_routes(&session) {
        for (what, body) in &broken {
            let request = server.request(method, &path).key(ADMIN).body("application/json", body.clone());
            assert_refused(&format!("{method} {path}: {what}"), &request);
        }
        // Each field with a value of every other type.
        for field in good.as_object().unwrap().keys() {
            for value in [
                json!(null),
                json!(true),
                json!(-1),
                json!(1e308),
                json!("\0"),
                json!([[[]]]),
                json!({ "a": {} }),
                json!([null, 1]),
            ] {
                let mut body = good.clone();
                body[field] = value.clone();
                let answer = server.request(method, &path).key(ADMIN).json(&body).send();
                assert!(
                    answer.status < 500,
                    "{method} {path}: {field} = {value}: {} {}",
                    answer.status,
                    answer.text()
                );
            }
        }
        assert!(server.request(method, &path).key(ADMIN).json(&good).send().status < 300, "{method} {path}");
    }
    for field in ["args", "files", "unknown", "session_id"] {
        let body = format!("{{\"lang\":\"py\",\"code\":\"1\",\"{field}\":{}}}", deep("[", "]"));
        let answer = server.post("/v1/exec").key(ADMIN).body("application/json", body).send();
        assert!(answer.status < 500, "deep in {field}: {}", answer.text());
    }
    // Numbers that are none, or too large to be times.
    for timeout in ["-1", "0", "-0.0", "1e300", "1e-300", "99999999999999999999999", "0.0001"] {
        let body = format!("{{\"lang\":\"py\",\"code\":\"print(1)\",\"timeout\":{timeout}}}");
        let answer = server.post("/v1/exec").key(ADMIN).body("application/json", body).send();
        assert_eq!(answer.status, 200, "{timeout}: {}", answer.text());
    }
    for timeout in ["NaN", "Infinity", "1e999", "\"1\"", "0x10", "[]"] {
        let body = format!("{{\"lang\":\"py\",\"code\":\"print(1)\",\"timeout\":{timeout}}}");
        assert_refused(timeout, &server.post("/v1/exec").key(ADMIN).body("application/json", body));
    }
    for timeout in ["-1", "0", "1.5", "18446744073709551616", "1e3", "null1"] {
        let body = format!("{{\"language\":\"py\",\"code\":\"print(1)\",\"timeout_ms\":{timeout}}}");
        assert_refused(timeout, &server.post("/api/v1/executions").key(ADMIN).body("application/json", body));
    }
    let huge = json!({ "language": "py", "code": "print(1)", "timeout_ms": u64::MAX });
    assert_eq!(server.post("/api/v1/executions").key(ADMIN).json(&huge).send().status, 200);
    for retention in ["9199999999999999999ms", "1e30d", "-1h", "forever ", "99999999999999999999d", "0s"] {
        let answer =
            server.post("/api/v1/sessions").key(ADMIN).json(&json!({ "retention": retention })).send();
        assert!(answer.status < 500, "{retention}: {}", answer.text());
        let path = format!("/api/v1/sessions/{session}");
        let answer =
            server.request("PATCH", &path).key(ADMIN).json(&json!({ "retention": retention })).send();
        assert!(answer.status < 500, "{retention}: {}", answer.text());
        server.request("PATCH", &path).key(ADMIN).json(&json!({ "retention": "1h" })).send();
    }
    world.assert_sound();
}

#[test]
fn a_huge_program_is_run_or_refused() {
    let world = World::new();
    let server = &world.server;
    let code = |size: usize| format!("print('begins')\n#{}\nprint('ends')", "x".repeat(size));
    let session = server.session(ADMIN);
    let small = run(server, ADMIN, &session, "py", &code(1 << 20));
    assert_eq!(small["stdout"]["text"], "begins\nends\n");
    for (path, body) in [
        ("/v1/exec", json!({ "lang": "py", "code": code(10 << 20) })),
        ("/v1/exec/programmatic", json!({ "lang": "py", "code": code(10 << 20), "tools": [] })),
        ("/api/v1/executions", json!({ "language": "py", "code": code(10 << 20) })),
    ] {
        let answer = server.post(path).key(ADMIN).json(&body).send();
        assert_eq!(answer.status, 413, "{path}: {}", answer.text());
        // Without saying how much.
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        );
        let bytes = [head.into_bytes(), chunked(body.to_string().as_bytes(), 1 << 16)].concat();
        let answer = exchange(server.address, &bytes);
        assert!(answer.is_ok_and(|answer| answer.status == 413), "{path}");
    }
    // Many, but small.
    for (what, body) in [
        ("arguments", json!({ "lang": "py", "code": "print(1)", "args": vec!["a"; 10_000] })),
        ("one long argument", json!({ "lang": "py", "code": "print(1)", "args": ["a".repeat(1 << 20)] })),
        ("a language", json!({ "lang": "a".repeat(1 << 20), "code": "print(1)" })),
        ("tools", json!({ "code": "print(1)", "tools": vec![json!({ "name": "t" }); 10_000] })),
    ] {
        let path = if what == "tools" { "/v1/exec/programmatic" } else { "/v1/exec" };
        let answer = server.post(path).key(ADMIN).json(&body).send();
        assert!(answer.status < 500, "{what}: {}", answer.text());
    }
    world.assert_sound();
}

/// How fast `bytes` without an end can be pushed into the server; what it answered.
fn pour(
    server: &Server,
    head: &str,
    first: &[u8],
    piece: &[u8],
    most: usize,
    is_chunked: bool,
) -> (usize, Option<Answer>) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = stream.write_all(head.as_bytes());
    let (start, mut sent) = (Instant::now(), 0);
    let mut push = |bytes: &[u8]| {
        let framed = if is_chunked {
            [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        } else {
            bytes.to_vec()
        };
        stream.write_all(&framed).is_ok()
    };
    if push(first) {
        while sent < most && start.elapsed() < Duration::from_secs(6) && push(piece) {
            sent += piece.len();
        }
    }
    (sent, read_answer(&mut stream).ok())
}

#[test]
fn a_body_without_an_end_is_given_up_early() {
    let world = World::new();
    let server = &world.server;
    let piece = vec![b'a'; 1 << 20];
    let most = 100 << 20;
    let head = |path: &str, kind: &str, length: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n"
        )
    };
    let (form, json) = ("multipart/form-data; boundary=b", "application/json");
    let declared = format!("Content-Length: {most}");
    for (what, path, kind, length, first) in [
        ("JSON that says how long it is", "/v1/exec", json, declared.as_str(), "{\"lang\":\""),
        ("JSON", "/v1/exec", json, "Transfer-Encoding: chunked", "{\"lang\":\""),
        (
            "a part's head",
            "/v1/upload",
            form,
            "Transfer-Encoding: chunked",
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"",
        ),
        ("a part's other head", "/v1/upload/batch", form, "Transfer-Encoding: chunked", "--b\r\nX-Long: "),
        ("what is before the first part", "/v1/upload", form, "Transfer-Encoding: chunked", "\r\n"),
        (
            "a field",
            "/v1/upload",
            form,
            "Transfer-Encoding: chunked",
            "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n",
        ),
        (
            "a field's name",
            "/v1/upload",
            form,
            "Transfer-Encoding: chunked",
            "--b\r\nContent-Disposition: form-data; name=\"",
        ),
    ] {
        let start = Instant::now();
        let (sent, answer) = pour(
            server,
            &head(path, kind, length),
            first.as_bytes(),
            &piece,
            most,
            length.contains("chunked"),
        );
        let told = answer.as_ref().map(|answer| answer.status);
        assert!(sent <= 20 << 20, "{what}: {sent} bytes were taken in {:?}, told {told:?}", start.elapsed());
        assert!(answer.is_none_or(|answer| is_refused(&answer)), "{what}");
        assert!(start.elapsed() < Duration::from_secs(6), "{what}: took {:?}", start.elapsed());
    }
    // Without a key, nothing is taken at all.
    let head = "POST /v1/upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (sent, _) = pour(server, head, b"--b\r\n", &piece, most, true);
    assert!(sent <= 10 << 20, "{sent} bytes were taken of somebody unknown");
    world.assert_sound();
}

/// JSON that takes much more memory when it is read than it has bytes.
#[test]
fn many_small_values_do_not_take_much_memory() {
    let world = World::new();
    let server = &world.server;
    let list = |piece: &str| {
        let count = (7 << 20) / piece.len();
        piece.repeat(count).trim_end_matches(',').to_owned()
    };
    let bodies = [
        ("/v1/exec", format!("{{\"lang\":\"py\",\"code\":\"1\",\"args\":[{}]}}", list("0,"))),
        ("/v1/exec", format!("{{\"lang\":\"py\",\"code\":\"1\",\"args\":[{}]}}", list("[],"))),
        (
            "/v1/exec",
            format!(
                "{{\"lang\":\"py\",\"code\":\"1\",\"files\":[{}]}}",
                list("{\"id\":\"\",\"name\":\"\"},")
            ),
        ),
        ("/v1/exec/programmatic", format!("{{\"code\":\"1\",\"tools\":[{}]}}", list("{\"name\":\"\"},"))),
        (
            "/v1/exec/programmatic",
            format!("{{\"continuation_token\":\"x\",\"tool_results\":[{}]}}", list("{\"call_id\":\"\"},")),
        ),
        (
            "/api/v1/executions",
            format!("{{\"language\":\"py\",\"code\":\"1\",\"arguments\":[{}]}}", list("\"\",")),
        ),
        ("/v1/exec", format!("{{\"lang\":\"py\",\"code\":\"1\",\"unknown\":[{}]}}", list("{},"))),
    ];
    for (path, body) in &bodies {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let answer = server.post(path).key(ADMIN).body("application/json", body.as_str()).send();
                    let what = &body[..60];
                    assert!(answer.status < 500, "{what}: {}", answer.status);
                    assert!(answer.body.len() < 2 << 20, "{what}: an answer of {} bytes", answer.body.len());
                });
            }
        });
        let peak = server.memory_peak();
        assert!(peak < crate::MOST_MEMORY, "{}: {peak} MiB", &body[..60]);
    }
    world.assert_sound();
}

#[test]
fn a_malformed_upload_leaves_nothing() {
    let world = World::new();
    let server = &world.server;
    let part = |head: &str, body: &str| format!("--b\r\n{head}\r\n\r\n{body}\r\n");
    let file = "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"";
    let field = |name: &str| part(&format!("Content-Disposition: form-data; name=\"{name}\""), "v");
    let many_fields: String = (0..10_000).map(|number| field(&format!("f{number}"))).collect();
    let many_files: String = (0..100_000).map(|_| part(file, "")).collect();
    let nested = part(
        "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: multipart/mixed; boundary=c",
        "--c\r\nContent-Disposition: attachment; filename=\"../../b.txt\"\r\n\r\nb\r\n--c--",
    );
    let form = "multipart/form-data; boundary=b";
    for (what, kind, body) in [
        ("no boundary", "multipart/form-data", part(file, "x") + "--b--"),
        ("an empty boundary", "multipart/form-data; boundary=", part(file, "x") + "--b--"),
        (
            "a very long boundary",
            &format!("multipart/form-data; boundary={}", "b".repeat(10_000)),
            part(file, "x") + "--b--",
        ),
        ("another boundary", "multipart/form-data; boundary=c", part(file, "x") + "--b--"),
        ("no multipart", "application/json", part(file, "x") + "--b--"),
        ("another multipart", "multipart/mixed; boundary=b", part(file, "x") + "--b--"),
        ("no body", form, String::new()),
        ("no parts", form, "--b--\r\n".into()),
        ("no end", form, part(file, "x")),
        ("no end of a part", form, format!("--b\r\n{file}\r\n\r\nabc")),
        ("no end of a head", form, format!("--b\r\n{file}\r\n")),
        ("no file", form, field("kind") + "--b--\r\n"),
        ("many fields", form, many_fields + &part(file, "x") + "--b--\r\n"),
        ("many files", form, many_files + "--b--\r\n"),
        (
            "a long field",
            form,
            part("Content-Disposition: form-data; name=\"id\"", &"a".repeat(1 << 20)) + "--b--\r\n",
        ),
        ("a long head", form, part(&format!("{file}\r\nX-Long: {}", "a".repeat(1 << 20)), "x") + "--b--\r\n"),
        ("many heads", form, part(&format!("{file}\r\n{}", "X-A: b\r\n".repeat(10_000)), "x") + "--b--\r\n"),
        ("no disposition", form, part("X-A: b", "x") + "--b--\r\n"),
        ("a zero byte in the head", form, part(&format!("{file}\0"), "x") + "--b--\r\n"),
    ] {
        for route in ["/v1/upload", "/v1/upload/batch"] {
            let answer = server.post(route).key(ADMIN).body(kind, body.as_str()).try_send();
            // Whoever is refused in the middle may find the connection closed.
            let Ok(answer) = answer else { continue };
            assert!(is_refused(&answer), "{what}: {} {}", answer.status, answer.text());
            assert!(answer.body.len() < 100_000, "{what}: an answer of {} bytes", answer.body.len());
        }
    }
    assert_eq!(stored_files(&world), 0);
    // Strange, but an upload: fields that come after the file count for nothing, and what is inside of a file is content.
    for (what, body) in [
        ("a field after the file", part(file, "x") + &field("read_only") + "--b--\r\n"),
        ("a form in a file", nested + "--b--\r\n"),
        ("more after the end", part(file, "x") + "--b--\r\nGET / HTTP/1.1\r\n\r\n"),
    ] {
        let answer = server.post("/v1/upload").key(ADMIN).body(form, body).send();
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert_eq!(text(&answer.json()["files"][0]["filename"]), "a.txt", "{what}");
    }
    world.assert_sound();
}

fn stored_files(world: &World) -> usize {
    fn count(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
    }
    count(&world.home.storage())
}

#[test]
fn compressed_bodies_are_not_unpacked() {
    // 64 MiB of spaces, which are 64 KiB as gzip. What is not unpacked is no JSON.
    let world = World::new();
    let server = &world.server;
    let bomb = "import gzip, sys\nwith gzip.GzipFile(fileobj=sys.stdout.buffer, mode='wb', compresslevel=6) as bomb:\n    \
                for _ in range(64): bomb.write(b' ' * (1 << 20))";
    let made = std::process::Command::new("python3").args(["-c", bomb]).output().unwrap();
    assert!(made.status.success() && made.stdout.len() < 200_000);
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        for (path, kind) in
            [("/v1/exec", "application/json"), ("/v1/upload", "multipart/form-data; boundary=b")]
        {
            let request = server
                .post(path)
                .key(ADMIN)
                .header("Content-Encoding", encoding)
                .body(kind, made.stdout.clone());
            assert_refused(&format!("{path} {encoding}"), &request);
        }
    }
    let peak = server.memory_peak();
    assert!(peak < 60, "{peak} MiB: it was unpacked");
    world.assert_sound();
}

/// The first answer, if there is one, and time for another request to be looked at. The connection stays open meanwhile: its
/// end would make the server drop what follows.
fn first_answer(server: &Server, bytes: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = stream.write_all(bytes.as_bytes());
    let answer = read_answer(&mut stream).ok();
    std::thread::sleep(Duration::from_millis(100));
    answer
}

#[test]
fn where_a_request_ends_cannot_be_disputed() {
    let world = World::new();
    let server = &world.server;
    let key = format!("X-API-Key: {ADMIN}");
    let hidden = "GET /api/v1/sessions/hidden-request HTTP/1.1\r\nHost: x\r\n\r\n";
    let body = "{\"lang\":\"py\",\"code\":\"print(1)\"}";
    let post = |more: &str, rest: &str| {
        format!("POST /v1/exec HTTP/1.1\r\nHost: x\r\n{key}\r\n{more}\r\n\r\n{rest}")
    };
    let size = body.len();
    for (what, bytes) in [
        (
            "a length and pieces",
            post(
                &format!("Content-Length: {size}\r\nTransfer-Encoding: chunked"),
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
        (
            "pieces and a length",
            post("Transfer-Encoding: chunked\r\nContent-Length: 4", &format!("0\r\n\r\n{hidden}")),
        ),
        (
            "two lengths",
            post(&format!("Content-Length: {size}\r\nContent-Length: 0"), &format!("{body}{hidden}")),
        ),
        ("lengths in one header", post(&format!("Content-Length: {size}, 0"), &format!("{body}{hidden}"))),
        ("a length with a sign", post(&format!("Content-Length: +{size}"), &format!("{body}{hidden}"))),
        ("a negative length", post("Content-Length: -1", &format!("{body}{hidden}"))),
        ("a length with a space", post(&format!("Content-Length : {size}"), &format!("{body}{hidden}"))),
        ("a length that is none", post("Content-Length: 0x10", &format!("{body}{hidden}"))),
        (
            "a length that is too large",
            post("Content-Length: 99999999999999999999999999", &format!("{body}{hidden}")),
        ),
        ("pieces in disguise", post("Transfer-Encoding: xchunked", &format!("0\r\n\r\n{hidden}"))),
        ("pieces, but not last", post("Transfer-Encoding: chunked, identity", &format!("0\r\n\r\n{hidden}"))),
        (
            "pieces twice",
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", &format!("0\r\n\r\n{hidden}")),
        ),
        ("a folded header", post("Transfer-Encoding:\r\n chunked", &format!("0\r\n\r\n{hidden}"))),
        ("a bad size", post("Transfer-Encoding: chunked", &format!("zz\r\n{body}\r\n0\r\n\r\n{hidden}"))),
        (
            "a size that overflows",
            post("Transfer-Encoding: chunked", &format!("fffffffffffffffff\r\n{body}\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "a negative size",
            post("Transfer-Encoding: chunked", &format!("-1\r\n{body}\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "a size without its piece",
            post("Transfer-Encoding: chunked", &format!("5\r\n{body}\r\n0\r\n\r\n{hidden}")),
        ),
        (
            "an endless extension",
            post(
                "Transfer-Encoding: chunked",
                &format!("1;{}\r\n{{\r\n0\r\n\r\n{hidden}", "a".repeat(100_000)),
            ),
        ),
        ("bare line feeds", post("Transfer-Encoding: chunked", &format!("{size:x}\n{body}\n0\n\n{hidden}"))),
        ("more than its length", post("Content-Length: 2", &format!("{{}}{}", "x".repeat(100)))),
    ] {
        if let Some(answer) = first_answer(server, &bytes) {
            assert!(is_refused(&answer), "{what}: {} {}", answer.status, answer.text());
        }
    }
    // A request that follows another by all rules is seen, so that none being seen means something.
    let control = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n{}", hidden.replace("hidden", "control"));
    first_answer(server, &control);
    assert!(server.log().contains("control-request"), "what follows is never looked at");
    let log = server.log();
    let seen = log.lines().filter(|line| line.contains("hidden-request")).count();
    assert_eq!(seen, 0, "a request was hidden in another: {log}");
    // A length that lies: too short is a request of that length, too long is one that does not come.
    let short = exchange(
        server.address,
        post(&format!("Connection: close\r\nContent-Length: {}", size - 3), body).as_bytes(),
    );
    assert!(is_refused(&short.unwrap()));
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(post(&format!("Content-Length: {}", size + 9), body).as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(read_answer(&mut stream).map_or(true, |answer| is_refused(&answer)));
    world.assert_sound();
}
