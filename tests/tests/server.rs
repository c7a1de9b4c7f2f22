//! The server as its users see it: the native API, and what all façades share.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::Mode;
use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::websocket::WebSocket;
use serde_json::{Value, json};

fn start() -> (Home, Server) {
    let home = Home::new(Mode::available()[0]);
    let server = home.serve();
    server.wait_until_ready();
    (home, server)
}

fn run_in(server: &Server, session: &str, language: &str, code: &str) -> Value {
    let answer = execution(server, session, &json!({ "language": language, "code": code })).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn execution(server: &Server, session: &str, body: &Value) -> Request {
    server.post(&format!("/api/v1/sessions/{session}/executions")).key(ADMIN).json(body)
}

fn upload(server: &Server, session: &str, files: &[(&str, &[u8])]) -> Answer {
    server.post(&format!("/api/v1/sessions/{session}/files")).key(ADMIN).form(&[], files).send()
}

fn content(server: &Server, session: &str, file: &Value) -> Answer {
    let id = file["id"].as_str().unwrap();
    server.get(&format!("/api/v1/sessions/{session}/files/{id}/content")).key(ADMIN).send()
}

#[test]
fn a_program_runs_and_its_files_stay() {
    for mode in Mode::available() {
        let home = Home::new(mode);
        let mut server = home.serve();
        server.wait_until_ready();
        let session = server.session(ADMIN);
        let made = run_in(&server, &session, "py", "open('a.txt', 'w').write('one')");
        assert_eq!(made["files"][0]["name"], "a.txt", "{made}");
        let seen = run_in(&server, &session, "py", "print(open('a.txt').read())");
        assert_eq!(seen["stdout"]["text"], "one\n");
        assert_eq!(seen["files"], json!([]));
        assert_eq!(server.stop(), Some(0), "{}", server.log());

        let server = home.serve();
        server.wait_until_ready();
        assert_eq!(content(&server, &session, &made["files"][0]).text(), "one");
    }
}

#[test]
fn a_session_keeps_its_files_through_all_that_programs_do() {
    let (_home, server) = start();
    let session = server.session(ADMIN);
    let names = ["in.csv", "data/née/你好.txt", "main.py", "gone.txt"];
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, name.as_bytes())).collect();
    let uploaded = upload(&server, &session, &files);
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    let uploaded = uploaded.json()["files"].clone();
    assert_eq!(uploaded[1]["name"], names[1]);

    // Nested and Unicode names are where they should be; what is like the script does not get lost.
    let code = "for f in in.csv data/née/你好.txt main.py; do cat \"$f\"; echo; done; echo more >> in.csv; rm gone.txt; \
                mkdir -p out/deep; echo new > out/deep/new.txt; touch main.py; ls";
    let ran = run_in(&server, &session, "bash", code);
    let stdout = ran["stdout"]["text"].as_str().unwrap();
    assert!(stdout.starts_with("in.csv\ndata/née/你好.txt\nmain.py\n"), "{ran}");
    assert_eq!(ran["deleted_files"], json!(["gone.txt"]));
    let mut made: Vec<_> =
        ran["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    made.sort_unstable();
    assert_eq!(made, ["in.csv", "out/deep/new.txt"], "only what was made or changed");

    // The newest wins, earlier versions stay.
    let seen = run_in(
        &server,
        &session,
        "py",
        "import os; print(open('in.csv').read(), os.path.exists('gone.txt'))",
    );
    assert_eq!(seen["stdout"]["text"], "in.csvmore\n False\n");
    assert_eq!(content(&server, &session, &uploaded[0]).text(), "in.csv");
    assert_eq!(content(&server, &session, &uploaded[3]).text(), "gone.txt");
    let listed = |query: &str| {
        let path = format!("/api/v1/sessions/{session}/files{query}");
        server.get(&path).key(ADMIN).send().json()["files"].as_array().unwrap().len()
    };
    assert_eq!((listed(""), listed("?all=true")), (4, 6));
    let artifacts = server.get(&format!("/api/v1/sessions/{session}/artifacts")).key(ADMIN).send().json();
    assert_eq!(artifacts["files"].as_array().unwrap().len(), 2);

    // All of it at once.
    let archive = server.get(&format!("/api/v1/sessions/{session}/archive")).key(ADMIN).send();
    assert_eq!((archive.status, archive.header("content-type")), (200, Some("application/zip")));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.zip");
    std::fs::write(&path, &archive.body).unwrap();
    let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; \
                  print(sorted(z.namelist())); print(z.read('in.csv'))";
    let listed = std::process::Command::new("python3").args(["-c", script]).arg(&path).output().unwrap();
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    let expected = "['data/née/你好.txt', 'in.csv', 'main.py', 'out/deep/new.txt']\nb'in.csvmore\\n'\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&listed.stderr));

    // Deleted is deleted.
    let file = ran["files"][0]["id"].as_str().unwrap();
    let path = format!("/api/v1/sessions/{session}/files/{file}");
    assert_eq!(server.request("DELETE", &path).key(ADMIN).send().status, 204);
    assert_eq!(server.get(&path).key(ADMIN).send().status, 404);
    assert_eq!(
        server.request("DELETE", &format!("/api/v1/sessions/{session}")).key(ADMIN).send().status,
        204
    );
    assert_eq!(content(&server, &session, &uploaded[0]).status, 404);
}

#[test]
fn every_language_answers_and_every_ending_is_told() {
    let (_home, server) = start();
    let once = |body: Value| server.post("/api/v1/executions").key(ADMIN).json(&body).send().json();
    for (language, code) in [
        ("py", "print(6 * 7)"),
        ("js", "console.log(6 * 7)"),
        ("ts", "const x: number = 6; console.log(x * 7)"),
        ("bash", "echo $((6 * 7))"),
        ("py", "6 * 7"),
    ] {
        let answer = once(json!({ "language": language, "code": code }));
        assert_eq!(answer["stdout"]["text"], "42\n", "{language}: {answer}");
        assert_eq!((answer["ending"].as_str(), answer["exit_code"].as_i64()), (Some("exited"), Some(0)));
    }
    let failed = once(
        json!({ "language": "py", "code": "import sys; print(sys.argv); 1 / 0", "arguments": ["a", "b c"] }),
    );
    assert_eq!(failed["exit_code"], 1);
    assert_eq!(failed["stdout"]["text"], "['main.py', 'a', 'b c']\n");
    assert!(failed["stderr"]["text"].as_str().unwrap().contains("ZeroDivisionError"));
    let slow = once(json!({ "language": "py", "code": "while True: pass", "timeout_ms": 300 }));
    assert_eq!((slow["ending"].as_str(), slow["limit"].as_str()), (Some("limit"), Some("wall")));
    let crashed = once(json!({ "language": "bash", "code": "kill -SEGV $$" }));
    assert_eq!(crashed["signal"], "SIGSEGV", "{crashed}");
    let greedy = once(json!({ "language": "py", "code": "x = bytearray(2 << 30)" }));
    assert!(greedy["exit_code"] == 1 || greedy["limit"] == "memory", "{greedy}");
    assert!(failed["isolation"]["layers"].as_array().unwrap().contains(&json!("seccomp")));

    // What ran can be looked at again.
    let id = failed["id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/v1/executions/{id}")).key(ADMIN).send().json(), failed);
    let session = failed["session_id"].as_str().unwrap();
    let all = server.get(&format!("/api/v1/sessions/{session}/executions")).key(ADMIN).send().json();
    assert_eq!(all["executions"], json!([failed]));
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    let (_home, server) = start();
    let post = |body: Value| server.post("/api/v1/executions").key(ADMIN).json(&body).send();
    for (body, said) in [
        (json!({ "language": "cobol", "code": "" }), "cobol"),
        (json!({ "language": "py" }), "code"),
        (json!({ "language": "py", "code": "", "cod": 1 }), "cod"),
        (json!({ "language": "py", "code": "", "timeout_ms": 0 }), "timeout_ms"),
        (json!([]), "JSON"),
    ] {
        let answer = post(body);
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let problem = answer.json();
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
        assert_eq!(problem["status"], 400);
    }
    let answer = server.get("/nowhere").send();
    assert_eq!((answer.status, answer.json()["code"].as_str()), (404, Some("not_found")));
    assert_eq!(server.request("PUT", "/api/v1/sessions").key(ADMIN).send().status, 405);
    let answer = server.post("/api/v1/sessions").key(ADMIN).json(&json!({ "profile": "nope" })).send();
    assert_eq!(answer.status, 400);
    assert_eq!(server.get("/api/v1/sessions").send().status, 401);
    // A request has an id, its own or ours.
    let answer = server.get("/healthz").header("X-Request-Id", "mine-1").send();
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    assert!(server.get("/healthz").send().header("x-request-id").is_some());
}

#[test]
fn sessions_can_be_listed_named_and_kept() {
    let (_home, server) = start();
    let ana = server.key("user", "ana");
    let ids: Vec<_> = (0..5).map(|_| server.session(&ana)).collect();
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = server.get(&format!("/api/v1/sessions?limit=2{after}")).key(&ana).send().json();
        seen.extend(
            page["sessions"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    // Those of one millisecond are in no order.
    let sorted = |ids: &[String]| {
        let mut ids = ids.to_vec();
        ids.sort();
        ids
    };
    assert_eq!(sorted(&seen), sorted(&ids));
    let path = format!("/api/v1/sessions/{}", ids[0]);
    let change = |body: Value| server.request("PATCH", &path).key(&ana).json(&body).send().json();
    assert_eq!(change(json!({ "name": "Häuser" }))["name"], "Häuser");
    assert_eq!(change(json!({ "retention": "forever" }))["expires_at"], Value::Null);
    assert!(change(json!({ "retention": "2h" }))["expires_at"].is_string());
    assert_eq!(change(json!({ "retention": "soon" }))["status"], 400);
    assert_eq!(server.get(&path).key(&ana).send().json()["user"], "ana");
    assert_eq!(server.get("/api/v1/sessions").key(ADMIN).send().json()["sessions"], json!([]));
}

/// The events of an SSE answer, as they come.
fn events(request: &Request) -> impl Iterator<Item = (String, Value, Instant)> {
    let mut stream = TcpStream::connect(request.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(&request.bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut name = String::new();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name.clone(), serde_json::from_str(data).unwrap(), Instant::now()));
            }
        }
    })
}

/// The same, with pieces of one stream that came after each other as one: where the kernel cuts is its own affair.
fn joined(events: impl Iterator<Item = (String, Value, Instant)>) -> Vec<(String, Value, Instant)> {
    let mut all: Vec<(String, Value, Instant)> = Vec::new();
    for event in events {
        match all.last_mut() {
            Some(last) if last.0 == event.0 && event.1["text"].is_string() => {
                last.1["text"] =
                    [&last.1, &event.1].map(|part| part["text"].as_str().unwrap()).concat().into();
            }
            _ => all.push(event),
        }
    }
    all
}

#[test]
fn output_comes_while_a_program_runs_and_it_can_be_cancelled() {
    let (_home, server) = start();
    let session = server.session(ADMIN);
    let code = "import time\nprint('é' * 3)\ntime.sleep(0.5)\nimport sys; print('end', file=sys.stderr)";
    let request = execution(&server, &session, &json!({ "language": "py", "code": code }))
        .header("Accept", "text/event-stream");
    let heard = joined(events(&request));
    let names: Vec<_> = heard.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["started", "stdout", "stderr", "result"]);
    assert_eq!(heard[1].1["text"], "ééé\n");
    assert!(heard[2].2 - heard[1].2 > Duration::from_millis(300), "it came as it was printed");
    assert_eq!(heard[3].1["id"], heard[0].1["id"]);
    assert_eq!(heard[3].1["stdout"]["text"], "ééé\n");

    let endless = json!({ "language": "bash", "code": "echo on; sleep 60" });
    let request = execution(&server, &session, &endless).header("Accept", "text/event-stream");
    let start = Instant::now();
    let mut heard = events(&request);
    let (_, started, _) = heard.next().unwrap();
    assert_eq!(heard.next().unwrap().0, "stdout");
    let id = started["id"].as_str().unwrap();
    let cancel = server.post(&format!("/api/v1/executions/{id}/cancel")).key(ADMIN).send();
    assert_eq!(cancel.status, 202);
    let (name, result, _) = heard.next().unwrap();
    assert_eq!((name.as_str(), result["ending"].as_str()), ("result", Some("cancelled")));
    assert!(start.elapsed() < Duration::from_secs(10));
    let again = server.post(&format!("/api/v1/executions/{id}/cancel")).key(ADMIN).send();
    assert_eq!(again.status, 404, "it does not run any more");
}

#[test]
fn a_websocket_runs_one_program_after_the_other() {
    let (_home, server) = start();
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/executions/ws");
    let mut socket = WebSocket::open(server.get(&path).key(ADMIN));
    for number in 0..3 {
        socket.say(&json!({ "language": "py", "code": format!("print({number})") }));
        assert_eq!(socket.hear()["event"], "started");
        // Python writes the line and its end one after the other.
        let mut printed = String::new();
        let result = loop {
            let message = socket.hear();
            match message["event"].as_str() {
                Some("stdout") => printed.push_str(message["data"]["text"].as_str().unwrap()),
                _ => break message,
            }
        };
        assert_eq!((printed, result["event"].as_str()), (format!("{number}\n"), Some("result")));
        assert_eq!(result["data"]["exit_code"], 0);
    }
    socket.say(&json!({ "language": "nope", "code": "" }));
    assert_eq!(socket.hear()["event"], "error");
    socket.say(&json!({ "language": "bash", "code": "echo on; sleep 60" }));
    assert_eq!(socket.hear()["event"], "started");
    assert_eq!(socket.hear()["event"], "stdout");
    socket.say(&json!({ "cancel": true }));
    let message = socket.hear();
    assert_eq!(message["data"]["ending"], "cancelled", "{message}");
    let answer = server.get(&path).key(ADMIN).send();
    assert!((400..500).contains(&answer.status), "without an upgrade: {}", answer.status);
}

#[test]
fn a_run_ends_with_its_client() {
    let (_home, server) = start();
    let session = server.session(ADMIN);
    let request = execution(&server, &session, &json!({ "language": "bash", "code": "sleep 60" }));
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&request.bytes()).unwrap();
    let in_use = || server.request("DELETE", &format!("/api/v1/sessions/{session}")).key(ADMIN).send().status;
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(in_use(), 409, "it runs");
    drop(stream);
    let deadline = Instant::now() + Duration::from_secs(10);
    while in_use() == 409 {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_goes_on_when_its_program_is_replaced() {
    let home = Home::new(Mode::available()[0]);
    let program = home.path().join("redoma-of-today");
    std::fs::copy(redoma_tests::redoma_program(), &program).unwrap();
    let server = home.serve_program(program.clone(), |command| command);
    server.wait_until_ready();
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "another program").unwrap();
    // More than wait already.
    for number in 0..8 {
        let body = json!({ "language": "ts", "code": format!("const x: number = {number}; console.log(x)") });
        let answer = server.post("/api/v1/executions").key(ADMIN).json(&body).send();
        assert_eq!(answer.json()["stdout"]["text"], format!("{number}\n"), "{}", server.log());
    }
}

#[test]
fn the_reference_needs_nothing_from_elsewhere() {
    let (_home, server) = start();
    let document = server.get("/openapi.json").send().json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, kind) in
        [("/docs", "text/html"), ("/docs/docs.css", "text/css"), ("/docs/docs.js", "text/javascript")]
    {
        let answer = server.get(path).send();
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").unwrap().starts_with(kind), "{path}");
        assert!(
            answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"),
            "{path}"
        );
        assert!(!answer.text().contains("https://"), "{path} names another host");
    }
    assert_eq!(server.get("/docs/").send().header("location"), Some("../docs"));
    assert_eq!(server.get("/healthz").send().status, 200);
}

#[test]
fn no_more_run_at_once_than_may_and_the_rest_wait_or_are_told() {
    let home = Home::new(Mode::available()[0]);
    home.configure("[engine]\nconcurrency = 2\n");
    let server = home.serve();
    server.wait_until_ready();
    let body = json!({ "language": "bash", "code": "sleep 0.3; echo done" });
    let start = Instant::now();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| server.post("/api/v1/executions").key(ADMIN).json(&body).send()))
            .collect();
        for run in runs {
            let answer = run.join().unwrap();
            assert_eq!((answer.status, answer.json()["stdout"]["text"].as_str()), (200, Some("done\n")));
        }
    });
    assert!(start.elapsed() > Duration::from_millis(850), "six in pairs of two take three times as long");
}

#[test]
fn a_file_that_came_while_another_of_its_name_was_deleted_stays() {
    let (_home, server) = start();
    let session = server.session(ADMIN);
    assert_eq!(upload(&server, &session, &[("x.csv", b"old")]).status, 201);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run_in(&server, &session, "bash", "sleep 1.5; rm x.csv"));
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(upload(&server, &session, &[("x.csv", b"new")]).status, 201);
        assert_eq!(run.join().unwrap()["deleted_files"], json!(["x.csv"]));
    });
    let files = server.get(&format!("/api/v1/sessions/{session}/files")).key(ADMIN).send().json();
    assert_eq!(files["files"][0]["version"], 2, "{files}");
}

#[test]
fn one_file_under_many_names_does_not_fill_the_disk() {
    let home = Home::new(Mode::available()[0]);
    home.configure("[storage]\nsession_quota = \"20MiB\"\n");
    let server = home.serve();
    server.wait_until_ready();
    let body = vec![b'x'; 2 << 20];
    let uploaded = server.post("/v1/upload").key(ADMIN).form(&[], &[("a.txt", &body)]).send().json();
    let (session, id) = (&uploaded["storage_session_id"], &uploaded["files"][0]["fileId"]);
    let files = |count: usize| {
        let one = |n: usize| json!({ "id": id, "storage_session_id": session, "name": format!("{n}.txt") });
        (0..count).map(one).collect::<Vec<_>>()
    };
    let exec =
        |count| server.exec(ADMIN, &json!({ "lang": "bash", "code": "ls | wc -l", "files": files(count) }));
    assert_eq!(exec(5).json()["stdout"], "6\n");
    assert_eq!(exec(50).status, 400);
}

#[test]
fn a_batch_keeps_what_there_is_room_for() {
    let home = Home::new(Mode::available()[0]);
    home.configure("[storage]\nsession_quota = \"1MiB\"\n");
    let server = home.serve();
    let large = vec![b'x'; 2 << 20];
    let files: [(&str, &[u8]); 3] = [("a.txt", b"a"), ("large.txt", &large), ("b.txt", b"b")];
    let answer = server.post("/v1/upload/batch").key(ADMIN).form(&[], &files).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["message"], "partial_success", "{answer}");
    assert_eq!((answer["succeeded"].as_u64(), answer["failed"].as_u64()), (Some(2), Some(1)));
}

#[test]
fn a_revoked_key_is_over_on_an_open_websocket_too() {
    let (_home, server) = start();
    let made = server
        .post("/api/v1/keys")
        .key(ADMIN)
        .json(&json!({ "role": "user", "client": "direct", "user": "ana" }))
        .send()
        .json();
    let key = made["secret"].as_str().unwrap();
    let session = server.session(key);
    let path = format!("/api/v1/sessions/{session}/executions/ws");
    let mut socket = WebSocket::open(server.get(&path).key(key));
    socket.say(&json!({ "language": "bash", "code": "true" }));
    assert_eq!(socket.hear()["event"], "started");
    assert_eq!(socket.hear()["event"], "result");
    let revoked =
        server.request("DELETE", &format!("/api/v1/keys/{}", made["id"].as_str().unwrap())).key(ADMIN).send();
    assert_eq!(revoked.status, 204);
    socket.say(&json!({ "language": "bash", "code": "true" }));
    let answer = socket.hear();
    assert_eq!((answer["event"].as_str(), answer["data"]["status"].as_u64()), (Some("error"), Some(401)));
}

#[test]
fn a_websocket_counts_as_a_connection_and_its_program_may_finish() {
    let home = Home::new(Mode::available()[0]);
    home.configure("[server]\nconnections = 3\n");
    let mut server = home.serve();
    server.wait_until_ready();
    let user = server.key("user", "ana");
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/executions/ws");
    let mut sockets: Vec<_> = (0..2).map(|_| WebSocket::open(server.get(&path).key(ADMIN))).collect();
    let third = WebSocket::open(server.get(&path).key(ADMIN));
    // All are busy: there is room for health checks and admins, and others are told to come back.
    let other = server.get("/api/v1/sessions").key(&user);
    let refused = other.send();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert_eq!(server.get("/healthz").send().status, 200);
    assert_eq!(server.get("/api/v1/sessions").key(ADMIN).send().status, 200);
    drop(third);
    let deadline = Instant::now() + Duration::from_secs(10);
    while other.send().status != 200 {
        assert!(Instant::now() < deadline, "the place of a socket that has gone is not free");
        std::thread::sleep(Duration::from_millis(20));
    }

    sockets[0].say(&json!({ "language": "bash", "code": "sleep 1; echo finished" }));
    assert_eq!(sockets[0].hear()["event"], "started");
    std::thread::sleep(Duration::from_millis(300));
    let stopped = std::thread::spawn(move || server.stop());
    assert_eq!(sockets[0].hear()["data"]["text"], "finished\n");
    assert_eq!(sockets[0].hear()["data"]["exit_code"], 0);
    assert_eq!(stopped.join().unwrap(), Some(0));
}

#[test]
fn a_server_without_keys_makes_none() {
    let home = Home::new(Mode::available()[0]);
    let server = home.serve_with(|command| command.arg("--no-auth"));
    let answer = server.post("/api/v1/keys").json(&json!({ "role": "admin", "client": "x" })).send();
    assert_eq!(answer.status, 403, "{}", answer.text());
}

#[test]
fn what_is_on_its_way_counts_against_a_users_quota() {
    let home = Home::new(Mode::available()[0]);
    home.configure("[storage]\nuser_quota = \"2MiB\"\n");
    let server = home.serve();
    let body = vec![b'x'; 3 << 19];
    let upload = server.post("/v1/upload").key(ADMIN).header("User-Id", "ana").form(&[], &[("a.txt", &body)]);
    // All but the end of it, and each is a session of its own.
    let bytes = upload.bytes();
    let mut first = TcpStream::connect(server.address).unwrap();
    first.write_all(&bytes[..bytes.len() - 100]).unwrap();
    let on_its_way =
        || home.incoming_files().iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>();
    let deadline = Instant::now() + Duration::from_secs(10);
    while on_its_way() < 1 << 20 {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = upload.send();
    assert_eq!((second.status, second.json()["error"].as_str()), (507, Some("quota")), "{}", second.text());
    let ben = server.post("/v1/upload").key(ADMIN).header("User-Id", "ben").form(&[], &[("a.txt", &body)]);
    assert_eq!(ben.send().status, 200, "others have room");
}

#[test]
fn what_all_who_use_an_agent_share_is_not_theirs_to_delete() {
    let (_home, server) = start();
    let (ana, ben) = (server.key("user", "ana"), server.key("user", "ben"));
    let fields = [("kind", "agent"), ("id", "ag1")];
    let uploaded = server.post("/v1/upload").key(&ana).form(&fields, &[("a.txt", b"shared")]).send().json();
    let (session, file) = (uploaded["storage_session_id"].as_str().unwrap(), &uploaded["files"][0]["fileId"]);
    let path = format!("/v1/sessions/{session}/objects/{}?kind=agent&id=ag1", file.as_str().unwrap());
    assert_eq!(server.get(&path).key(&ben).send().status, 200);
    assert_eq!(server.request("DELETE", &path).key(&ben).send().status, 404);
    assert_eq!(server.request("DELETE", &path).key(&ana).send().status, 200);
}
