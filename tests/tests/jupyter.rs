//! Jupyter's kernels API: what every client relies on, spoken by hand, and the real clients. Their suites are in
//! `tests/jupyter`: they drive the Python packages that `scripts/test.sh` installs, unmodified.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use redoma_tests::Mode;
use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::websocket::{WebSocket, opcode};
use serde_json::{Value, json};

fn start() -> (Home, Server) {
    let home = Home::new(Mode::available()[0]);
    let server = home.serve();
    server.wait_until_ready();
    (home, server)
}

/// A request with the key as Jupyter's own clients send it.
fn request(server: &Server, key: &str, method: &str, path: &str) -> Request {
    server.request(method, &format!("/jupyter{path}")).header("Authorization", &format!("token {key}"))
}

fn new_kernel(server: &Server, key: &str, name: &str) -> String {
    let answer = request(server, key, "POST", "/api/kernels").json(&json!({ "name": name })).send();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn connect(server: &Server, key: &str, kernel: &str) -> WebSocket {
    WebSocket::open(request(server, key, "GET", &format!("/api/kernels/{kernel}/channels")))
}

fn message(id: &str, kind: &str, channel: &str, content: &Value) -> Value {
    json!({
        "header": { "msg_id": id, "msg_type": kind, "username": "u", "session": "s", "date": "", "version": "5.3" },
        "parent_header": {}, "metadata": {}, "content": content, "channel": channel,
    })
}

fn ask(socket: &mut WebSocket, id: &str, code: &str) {
    socket.say(&message(id, "execute_request", "shell", &json!({ "code": code })));
}

/// Everything about one request, up to its `idle`.
fn answers(socket: &mut WebSocket, id: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    loop {
        let message = socket.hear();
        if message["parent_header"]["msg_id"] != id {
            continue;
        }
        let is_last = message["msg_type"] == "status" && message["content"]["execution_state"] == "idle";
        seen.push(message);
        if is_last {
            return seen;
        }
    }
}

fn run(socket: &mut WebSocket, id: &str, code: &str) -> Vec<Value> {
    ask(socket, id, code);
    answers(socket, id)
}

/// The kinds of messages in their order; text in several pieces counts as one.
fn kinds(messages: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = messages.iter().map(|message| message["msg_type"].as_str().unwrap()).collect();
    kinds.dedup_by(|one, other| one == other && *one == "stream");
    kinds
}

fn of_kind<'a>(messages: &'a [Value], kind: &str) -> &'a Value {
    let found = messages.iter().find(|message| message["msg_type"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}: {messages:?}"))["content"]
}

/// Comes back when a cell has printed this.
fn wait_for(socket: &mut WebSocket, text: &str) {
    let mut seen = String::new();
    while !seen.contains(text) {
        seen += socket.hear()["content"]["text"].as_str().unwrap_or_default();
    }
}

fn stream(messages: &[Value], name: &str) -> String {
    let pieces = messages.iter().filter(|message| message["content"]["name"] == name);
    pieces.map(|message| message["content"]["text"].as_str().unwrap()).collect()
}

#[test]
fn a_cell_is_answered_in_the_order_that_clients_know() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    let seen = run(&mut socket, "1", "print('a')\n6 * 7");
    assert_eq!(
        kinds(&seen),
        ["status", "execute_input", "stream", "execute_result", "execute_reply", "status"],
        "{seen:?}"
    );
    for message in &seen {
        assert_eq!(message["msg_id"], message["header"]["msg_id"]);
        assert_eq!(message["buffers"], json!([]));
        assert_eq!(message["parent_header"]["session"], "s");
        let is_reply = message["msg_type"] == "execute_reply";
        assert_eq!(message["channel"], if is_reply { "shell" } else { "iopub" });
    }
    assert_eq!(
        *of_kind(&seen, "execute_input"),
        json!({ "code": "print('a')\n6 * 7", "execution_count": 1 })
    );
    assert_eq!(of_kind(&seen, "execute_result")["data"]["text/plain"], "42");
    let reply = of_kind(&seen, "execute_reply");
    assert_eq!(
        *reply,
        json!({ "status": "ok", "execution_count": 1, "user_expressions": {}, "payload": [] })
    );

    let seen = run(&mut socket, "2", "1 / 0");
    let error = of_kind(&seen, "error");
    assert_eq!(
        (&error["ename"], of_kind(&seen, "execute_reply")["status"].as_str()),
        (&json!("ZeroDivisionError"), Some("error"))
    );
    let seen = run(&mut socket, "3", "");
    assert_eq!(of_kind(&seen, "execute_reply")["execution_count"], 2);
    let silent = json!({ "code": "print(1)\n2", "silent": true });
    socket.say(&message("4", "execute_request", "shell", &silent));
    assert_eq!(kinds(&answers(&mut socket, "4")), ["status", "stream", "execute_reply", "status"]);
}

#[test]
fn variables_live_as_long_as_the_kernel() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    run(&mut socket, "1", "x = 41");
    assert_eq!(of_kind(&run(&mut socket, "2", "x + 1"), "execute_result")["data"]["text/plain"], "42");
    // Another client sees the same ones, and what the first one does.
    let mut other = connect(&server, ADMIN, &kernel);
    assert_eq!(of_kind(&run(&mut other, "3", "x + 2"), "execute_result")["data"]["text/plain"], "43");
    let seen = answers(&mut socket, "3");
    assert!(!kinds(&seen).contains(&"execute_reply") && kinds(&seen).contains(&"execute_result"));
    let path = format!("/api/kernels/{kernel}/restart");
    let answer = request(&server, ADMIN, "POST", &path).body("application/json", "").send();
    assert_eq!((answer.status, answer.json()["id"].as_str()), (200, Some(kernel.as_str())));
    let seen = run(&mut socket, "4", "x");
    assert_eq!(of_kind(&seen, "error")["ename"], "NameError");
    assert_eq!(of_kind(&seen, "execute_reply")["execution_count"], 1);
}

#[test]
fn cells_queue_and_a_failed_one_ends_those_behind_it() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    ask(&mut socket, "1", "import time; time.sleep(0.5); 1 / 0");
    ask(&mut socket, "2", "print('never')");
    socket.say(&message("3", "kernel_info_request", "shell", &json!({})));
    let first = answers(&mut socket, "1");
    assert_eq!(of_kind(&first, "execute_reply")["status"], "error");
    let second = answers(&mut socket, "2");
    assert_eq!(*of_kind(&second, "execute_reply"), json!({ "status": "aborted" }));
    let third = answers(&mut socket, "3");
    assert_eq!(kinds(&third), ["status", "kernel_info_reply", "status"]);
    assert_eq!(of_kind(&third, "kernel_info_reply")["language_info"]["name"], "python");
    // What comes later runs, also where a client wants to go on.
    let goes_on = json!({ "code": "1 / 0", "stop_on_error": false });
    socket.say(&message("4", "execute_request", "shell", &goes_on));
    ask(&mut socket, "5", "print('runs')");
    answers(&mut socket, "4");
    assert_eq!(stream(&answers(&mut socket, "5"), "stdout"), "runs\n");
}

#[test]
fn every_request_is_answered_and_bad_ones_end_nothing() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "bash");
    let mut socket = connect(&server, ADMIN, &kernel);
    for (number, (kind, reply)) in [
        ("complete_request", Some("complete_reply")),
        ("inspect_request", Some("inspect_reply")),
        ("is_complete_request", Some("is_complete_reply")),
        ("history_request", Some("history_reply")),
        ("comm_info_request", Some("comm_info_reply")),
        ("debug_request", Some("debug_reply")),
        ("interrupt_request", Some("interrupt_reply")),
        ("comm_open", None),
        ("comm_msg", None),
        ("what_is_this_request", None),
    ]
    .into_iter()
    .enumerate()
    {
        for channel in ["shell", "control"] {
            let id = format!("{number}-{channel}");
            socket.say(&message(&id, kind, channel, &json!({ "code": "x", "cursor_pos": 1 })));
            let seen = answers(&mut socket, &id);
            let middle: Vec<_> = reply.into_iter().collect();
            assert_eq!(kinds(&seen)[1..seen.len() - 1], middle, "{kind}");
        }
    }
    for text in ["", "x", "[]", "{}", "null", "{\"header\": 1}", "{\"header\": {\"msg_type\": 7}}"] {
        socket.send(opcode::TEXT, text.as_bytes());
        socket.send(opcode::BINARY, text.as_bytes());
    }
    socket.say(&message("c", "execute_request", "nowhere", &json!({ "code": "echo no" })));
    socket.say(&message("i", "input_reply", "stdin", &json!({ "value": "no" })));
    for content in [json!(1), json!("x"), json!({ "code": 1 }), json!({ "code": "a", "silent": "x" })] {
        socket.say(&message("bad", "execute_request", "shell", &content));
        let seen = answers(&mut socket, "bad");
        assert_eq!(of_kind(&seen, "execute_reply")["status"], "error", "{content}");
        assert_eq!(of_kind(&seen, "error")["ename"], "BadRequest");
    }
    socket.say(&message("null", "execute_request", "shell", &Value::Null));
    assert_eq!(of_kind(&answers(&mut socket, "null"), "execute_reply")["status"], "ok");
    assert_eq!(stream(&run(&mut socket, "good", "echo good"), "stdout"), "good\n");
}

#[test]
fn the_binary_framing_is_spoken_where_it_is_wanted() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let path = format!("/api/kernels/{kernel}/channels");
    let wanted = request(&server, ADMIN, "GET", &path)
        .header("Sec-WebSocket-Protocol", "v1.kernel.websocket.jupyter.org");
    let mut socket = WebSocket::open(wanted);
    let parts: [&[u8]; 5] = [
        b"shell",
        br#"{"msg_id": "1", "msg_type": "execute_request"}"#,
        b"{}",
        b"{}",
        br#"{"code": "print('b')"}"#,
    ];
    let mut at = 56u64;
    let mut bytes = 6u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(&at.to_le_bytes());
    for part in parts {
        at += part.len() as u64;
        bytes.extend_from_slice(&at.to_le_bytes());
    }
    bytes.extend(parts.concat());
    socket.send(opcode::BINARY, &bytes);
    let mut said = Vec::new();
    loop {
        let (kind, bytes) = socket.frame().unwrap();
        assert_eq!(kind, opcode::BINARY);
        let number = |place: usize| {
            usize::try_from(u64::from_le_bytes(bytes[place * 8..place * 8 + 8].try_into().unwrap())).unwrap()
        };
        assert_eq!(number(0), 6);
        let part = |place: usize| &bytes[number(place + 1)..number(place + 2)];
        let json = |place: usize| serde_json::from_slice::<Value>(part(place)).unwrap();
        assert_eq!(json(2)["msg_id"], "1");
        said.push(format!("{} {}", String::from_utf8_lossy(part(0)), json(1)["msg_type"].as_str().unwrap()));
        if json(4)["execution_state"] == "idle" {
            break;
        }
    }
    said.dedup();
    assert_eq!(
        said,
        ["iopub status", "iopub execute_input", "iopub stream", "shell execute_reply", "iopub status"]
    );
}

#[test]
fn kernels_are_their_owners_alone() {
    let (_home, server) = start();
    let (one, two) = (server.key("client", "one"), server.key("client", "two"));
    let kernel = new_kernel(&server, &one, "python3");
    assert_eq!(request(&server, &one, "GET", "/api/kernels").send().json()[0]["id"], *kernel);
    assert_eq!(request(&server, &two, "GET", "/api/kernels").send().json(), json!([]));
    let unknown = "00000000-0000-4000-8000-000000000000";
    let others = |method: &str, rest: &str, named: Option<&str>| {
        let at = |id: &str| {
            let request = request(
                &server,
                if named.is_some() { &one } else { &two },
                method,
                &format!("/api/kernels/{id}{rest}"),
            );
            let answer = named.iter().fold(request, |request, user| request.header("X-User-Id", user)).send();
            (answer.status, answer.text())
        };
        assert_eq!(at(&kernel), at(unknown), "{method} {rest}");
        assert_eq!(at(&kernel).0, 404);
    };
    for named in [None, Some("somebody")] {
        others("GET", "", named);
        others("DELETE", "", named);
        others("POST", "/interrupt", named);
        others("POST", "/restart", named);
        others("GET", "/channels", named);
    }
    let socket =
        WebSocket::try_open(request(&server, &two, "GET", &format!("/api/kernels/{kernel}/channels")));
    assert!(socket.unwrap_err().starts_with("HTTP/1.1 404"));
    let model = request(&server, &one, "GET", &format!("/api/kernels/{kernel}")).send().json();
    assert_eq!((model["name"].as_str(), model["execution_state"].as_str()), (Some("python3"), Some("idle")));
    assert_eq!(request(&server, &one, "DELETE", &format!("/api/kernels/{kernel}")).send().status, 204);
    assert_eq!(request(&server, &one, "GET", &format!("/api/kernels/{kernel}")).send().status, 404);
}

#[test]
fn the_key_is_taken_in_every_form_and_never_logged() {
    let (_home, server) = start();
    let key = server.key("client", "forms");
    let plain = |path: &str| server.get(&format!("/jupyter{path}"));
    for request in [
        plain(&format!("/api/kernels?token={key}")),
        plain("/api/kernels").header("Authorization", &format!("token {key}")),
        plain("/api/kernels").header("Authorization", &format!("Token {key}")),
        plain("/api/kernels").header("Authorization", &format!("Bearer {key}")),
        plain("/api/kernels").key(&key),
        server.get(&format!("/k/{key}/jupyter/api/kernels")),
    ] {
        assert_eq!(request.send().status, 200, "{request:?}");
    }
    for request in [
        plain("/api/kernels"),
        plain("/api/kernels?token=wrong"),
        plain("/api/kernelspecs"),
        plain("/api/me"),
    ] {
        let answer = request.send();
        assert_eq!(answer.status, 401);
        assert!(answer.json()["message"].is_string(), "{}", answer.text());
    }
    assert_eq!(
        plain("/api").send().json()["version"].as_str().map(|version| version.split('.').count()),
        Some(3)
    );
    // The token in the query is Jupyter's alone.
    assert_eq!(server.get(&format!("/api/v1/sessions?token={key}")).send().status, 401);
    let empty =
        server.post(&format!("/jupyter/api/kernels?token={key}")).body("application/octet-stream", "");
    let answer = empty.send();
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), Some(format!("/jupyter/api/kernels/{id}").as_str()));
    let specs = request(&server, &key, "GET", "/api/kernelspecs").send().json();
    assert_eq!(specs["default"], "python3");
    for name in ["python3", "javascript", "typescript", "bash"] {
        let one = request(&server, &key, "GET", &format!("/api/kernelspecs/{name}")).send().json();
        assert_eq!(specs["kernelspecs"][name], one);
    }
    assert_eq!(request(&server, &key, "GET", "/api/kernelspecs/cobol").send().status, 404);
    assert_eq!(
        request(&server, &key, "POST", "/api/kernels").json(&json!({ "name": "cobol" })).send().status,
        404
    );
    for bad in ["{", "[]", "{\"name\": 1}"] {
        let answer = request(&server, &key, "POST", "/api/kernels").body("application/json", bad).send();
        assert_eq!(answer.status, 400, "{bad}");
    }
    assert!(!server.log().contains(&key), "{}", server.log());
}

/// Cookies that an answer sets, as a browser sends them back.
fn cookies(answer: &Answer) -> Vec<String> {
    let set = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
    set.map(|(_, value)| value.split(';').next().unwrap().to_owned()).collect()
}

#[test]
fn a_login_is_good_for_this_api_as_long_as_its_key() {
    let (_home, server) = start();
    let keys = server
        .post("/api/v1/keys")
        .key(ADMIN)
        .json(&json!({ "role": "client", "client": "ow" }))
        .send()
        .json();
    let key = keys["secret"].as_str().unwrap();
    let form = server.get("/jupyter/login").send();
    let set = form.header("set-cookie").unwrap();
    assert!(set.starts_with("_xsrf=") && !set.contains("Path=") && !set.contains('"'), "{set}");
    let xsrf = cookies(&form)[0].clone();
    let token = xsrf.strip_prefix("_xsrf=").unwrap();
    let login = |xsrf_field: &str, password: &str, cookie: &str| {
        let body = format!("_xsrf={xsrf_field}&password={password}");
        let post = server.post("/jupyter/login").header("Cookie", cookie);
        post.body("application/x-www-form-urlencoded", body).send()
    };
    assert_eq!(login("", key, &xsrf).status, 403);
    assert_eq!(login(token, key, "").status, 403);
    assert_eq!(login(token, "wrong", &xsrf).status, 401);
    let answer = login(token, key, &xsrf);
    assert_eq!(answer.status, 302, "{}", answer.text());
    let set = answer.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax") && !set.contains("Path="), "{set}");
    assert!(!set.contains(key));
    let jar = format!("{xsrf}; {}", cookies(&answer)[0]);
    let by_cookie = |method: &str, path: &str| server.request(method, path).header("Cookie", &jar);

    assert_eq!(by_cookie("GET", "/jupyter/api/kernels").send().status, 200);
    assert_eq!(by_cookie("GET", "/api/v1/sessions").send().status, 401);
    assert_eq!(by_cookie("POST", "/v1/exec").json(&json!({})).send().status, 401);
    assert_eq!(by_cookie("POST", "/jupyter/api/kernels").send().status, 403);
    assert_eq!(by_cookie("POST", "/jupyter/api/kernels").header("X-XSRFToken", "wrong").send().status, 403);
    let made = by_cookie("POST", "/jupyter/api/kernels").header("X-XSRFToken", token).send();
    assert_eq!(made.status, 201);
    let channels = format!("/jupyter/api/kernels/{}/channels", made.json()["id"].as_str().unwrap());
    let foreign = by_cookie("GET", &channels).header("Origin", "http://elsewhere.example");
    assert!(WebSocket::try_open(foreign).unwrap_err().starts_with("HTTP/1.1 403"));
    let own = by_cookie("GET", &channels).header("Origin", &format!("http://{}", server.address));
    let mut socket = WebSocket::open(own);
    assert_eq!(stream(&run(&mut socket, "1", "print(1)"), "stdout"), "1\n");

    let revoke = server.request("DELETE", &format!("/api/v1/keys/{}", keys["id"].as_str().unwrap()));
    assert_eq!(revoke.key(ADMIN).send().status, 204);
    ask(&mut socket, "2", "print(2)");
    assert_eq!(socket.closing().unwrap().0, 1008);
    assert_eq!(by_cookie("GET", "/jupyter/api/kernels").send().status, 401);
    assert!(!server.log().contains(key));
}

#[test]
fn no_message_is_larger_than_clients_take_and_nothing_is_lost() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    let mut sizes = |id: &str, code: &str| {
        ask(&mut socket, id, code);
        let mut seen = Vec::new();
        loop {
            let (kind, bytes) = socket.frame().unwrap();
            if kind != opcode::TEXT {
                continue;
            }
            assert!(bytes.len() <= 1_000_000, "{} bytes", bytes.len());
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            let is_last = message["content"]["execution_state"] == "idle";
            seen.push(message);
            if is_last {
                return seen;
            }
        }
    };
    let seen = sizes("1", "print('\\x01' * 400_000)");
    assert_eq!(stream(&seen, "stdout").len(), 400_001);
    let seen = sizes("2", "print('☃😀' * 100_000)");
    assert_eq!(stream(&seen, "stdout").chars().count(), 200_001);
    sizes("3", "raise ValueError('\\x02' * 1_000_000)");
    sizes("4", &format!("# {}", "é".repeat(1_000_000)));
    sizes("5", "'y' * 2_000_000");
}

#[test]
fn a_large_picture_is_shown_smaller_and_kept_whole() {
    const NOISE: &str = "
import numpy, matplotlib.pyplot as plt
figure = plt.figure(figsize=(9, 6), dpi=100)
axes = figure.add_axes([0, 0, 1, 1])
axes.imshow(numpy.random.default_rng(1).integers(0, 256, (600, 900, 3), dtype=numpy.uint8), aspect='auto')
plt.show()
";
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    let seen = run(&mut socket, "1", NOISE);
    assert!(seen.iter().all(|message| message.to_string().len() <= 1_000_000));
    let shown = of_kind(&seen, "display_data")["data"]["image/png"].as_str().unwrap();
    assert!(shown.starts_with("iVBORw0KGgo") && shown.len() > 300_000, "{}", shown.len());
    let note = stream(&seen, "stderr");
    assert!(note.contains("`output-1-1.png`"), "{note}");
    let path = note.split("GET ").nth(1).unwrap().trim();
    let whole = server.get(path).key(ADMIN).send();
    assert_eq!(whole.status, 200);
    assert!(whole.body.starts_with(b"\x89PNG") && whole.body.len() > 1_000_000, "{}", whole.body.len());
    let width = u32::from_be_bytes(whole.body[16..20].try_into().unwrap());
    assert!(width >= 900, "{width}");
}

#[test]
fn a_silent_cell_is_heard_of() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    ask(&mut socket, "1", "import time; time.sleep(7)");
    let mut last = Instant::now();
    loop {
        let message = socket.hear();
        assert!(last.elapsed() < Duration::from_secs(4), "silence before {message}");
        assert_eq!(message["parent_header"]["msg_id"], "1");
        last = Instant::now();
        if message["content"]["execution_state"] == "idle" {
            break;
        }
    }
}

#[test]
fn a_kernel_that_is_deleted_ends_its_cell_and_keeps_its_files() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let model = request(&server, ADMIN, "GET", &format!("/api/kernels/{kernel}")).send().json();
    let session = model["redoma_session_id"].as_str().unwrap().to_owned();
    let mut socket = connect(&server, ADMIN, &kernel);
    let seen = run(&mut socket, "1", "open('kept.txt', 'w').write('kept')");
    let reply = seen.iter().find(|message| message["msg_type"] == "execute_reply").unwrap();
    let path = reply["metadata"]["redoma"]["files"][0]["path"].as_str().unwrap().to_owned();
    ask(&mut socket, "2", "import time\nprint('begun', flush=True)\ntime.sleep(60)");
    wait_for(&mut socket, "begun");
    ask(&mut socket, "3", "print('never')");
    let begun = Instant::now();
    assert_eq!(request(&server, ADMIN, "DELETE", &format!("/api/kernels/{kernel}")).send().status, 204);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(of_kind(&answers(&mut socket, "2"), "execute_reply")["status"], "error");
    assert_eq!(of_kind(&answers(&mut socket, "3"), "execute_reply")["status"], "aborted");
    assert_eq!(socket.closing().unwrap().0, 1000);
    assert_eq!(server.get(&path).key(ADMIN).send().text(), "kept");

    // One without files leaves nothing.
    let kernel = new_kernel(&server, ADMIN, "python3");
    let model = request(&server, ADMIN, "GET", &format!("/api/kernels/{kernel}")).send().json();
    let empty = model["redoma_session_id"].as_str().unwrap().to_owned();
    assert_ne!(empty, session);
    assert_eq!(request(&server, ADMIN, "DELETE", &format!("/api/kernels/{kernel}")).send().status, 204);
    assert_eq!(server.get(&format!("/api/v1/sessions/{empty}")).key(ADMIN).send().status, 404);
}

#[test]
fn a_client_may_leave_and_come_back() {
    let (_home, server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let path = format!("/api/kernels/{kernel}/channels?session_id=abc");
    let mut first = WebSocket::open(request(&server, ADMIN, "GET", &path));
    ask(&mut first, "1", "import time\ntime.sleep(3)\nprint('done')");
    assert_eq!(first.hear()["content"]["execution_state"], "busy");
    // The same client again: it takes its own place, and gets the reply.
    let mut again = WebSocket::open(request(&server, ADMIN, "GET", &path));
    assert_eq!(first.closing().unwrap().0, 1000);
    let seen = answers(&mut again, "1");
    assert_eq!(stream(&seen, "stdout"), "done\n");
    assert_eq!(of_kind(&seen, "execute_reply")["status"], "ok");

    // A goodbye is answered at once.
    let begun = Instant::now();
    again.send(opcode::CLOSE, &1000u16.to_be_bytes());
    assert_eq!(again.closing().unwrap().0, 1000);
    assert!(again.frame().is_none() && begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn the_server_says_goodbye() {
    let (_home, mut server) = start();
    let kernel = new_kernel(&server, ADMIN, "python3");
    let mut socket = connect(&server, ADMIN, &kernel);
    let idle = new_kernel(&server, ADMIN, "bash");
    let mut idle = connect(&server, ADMIN, &idle);
    ask(&mut socket, "1", "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')");
    wait_for(&mut socket, "begun");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(idle.closing().unwrap().0, 1001);
    assert_eq!(stream(&answers(&mut socket, "1"), "stdout"), "done\n");
    assert_eq!(socket.closing().unwrap().0, 1001);
}

#[test]
fn there_are_not_more_kernels_and_connections_than_may_be() {
    let (_home, server) = start();
    let key = server.key("client", "many");
    let ids: Vec<_> = (0..128).map(|_| new_kernel(&server, &key, "python3")).collect();
    let answer = request(&server, &key, "POST", "/api/kernels").send();
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (429, true), "{}", answer.text());
    assert_eq!(request(&server, &key, "DELETE", &format!("/api/kernels/{}", ids[0])).send().status, 204);
    new_kernel(&server, &key, "python3");
    // Nobody else is concerned.
    new_kernel(&server, ADMIN, "python3");
    let mut sockets: Vec<_> = (0..32).map(|_| connect(&server, &key, &ids[1])).collect();
    assert_eq!(connect(&server, &key, &ids[1]).closing().unwrap().0, 1013);
    sockets[0].say(&message("1", "kernel_info_request", "control", &json!({})));
    answers(&mut sockets[31], "1");
    // What is too large is told.
    sockets[0].send(opcode::TEXT, &vec![b' '; 9 << 20]);
    assert_eq!(sockets[0].closing().map(|(number, _)| number), Some(1009));
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Runs the suite of a real client.
fn passes(suite: &str, more: &[&str]) {
    let chosen = std::env::var_os("REDOMA_JUPYTER_CLIENTS").map(PathBuf::from);
    let clients = chosen.unwrap_or_else(|| workspace().join("target/jupyter-clients"));
    assert!(
        clients.join("venv").exists(),
        "the clients are not installed; run tests/jupyter/install.sh {}",
        clients.display()
    );
    let home = Home::new(Mode::available()[0]);
    home.configure("[profiles.default.limits]\nwall = \"10s\"\n");
    let server = home.serve();
    server.wait_until_ready();
    let (key, other) = (server.key("client", "jupyter"), server.key("client", "other"));
    let more = more.iter().map(|word| match *word {
        "KEY" => key.as_str(),
        "OTHER" => other.as_str(),
        word => word,
    });
    let output = Command::new(clients.join("venv/bin/python"))
        .arg(workspace().join("tests/jupyter").join(suite))
        .arg(format!("http://127.0.0.1:{}/jupyter", server.address.port()))
        .arg(&key)
        .args(more)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = said.lines().filter(|line| !line.starts_with("ok")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", failed.join("\n"));
    assert!(said.contains(" passed, 0 failed"), "the suite did not run: {said}{errors}");
    assert!(!server.log().contains(&key));
}

#[test]
fn open_webui_works_unmodified() {
    passes("openwebui.py", &["--password", "KEY", "--wall", "10"]);
}

#[test]
fn jupyter_kernel_client_works_unmodified() {
    passes("kernel_client.py", &[]);
}

#[test]
fn a_jupyter_server_with_this_gateway_works_unmodified() {
    passes("gateway.py", &["--token-b", "OTHER"]);
}
