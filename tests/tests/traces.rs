//! Traces as a collector gets them: a real server, and a collector that is a few lines of TCP, so that it can also refuse, hang or be
//! busy.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redoma_tests::http::Answer;
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::websocket::WebSocket;
use redoma_tests::{Mode, wait_until};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// A request to the collector.
#[derive(Debug)]
struct Export {
    head: String,
    body: String,
}

impl Export {
    fn read(mut stream: &TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if body.len() == length.parse::<usize>().unwrap() {
                    return Some(Self { head, body: body.to_owned() });
                }
            }
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn spans(&self) -> Vec<Value> {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(body["resourceSpans"].as_array().map(Vec::len), Some(1));
        body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    }
}

/// Answers each request with the next of these, and the last again and again.
fn collector(answers: &'static [&str]) -> (SocketAddr, Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sender, exports) = channel();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let answers = answers.iter().chain(std::iter::repeat(answers.last().unwrap()));
        for (stream, answer) in listener.incoming().zip(answers) {
            let mut stream = stream.unwrap();
            if let Some(export) = Export::read(&stream) {
                let _ = stream.write_all(answer.as_bytes());
                let _ = sender.send(export);
            }
        }
    });
    (address, exports)
}

fn serve(telemetry: &str) -> (Home, Server) {
    let home = Home::new(Mode::available()[0]);
    home.configure(&format!("{telemetry}\n[profiles.default]\npreload = []\n"));
    let server = home.serve();
    server.wait_until_ready();
    (home, server)
}

fn telemetry(collector: SocketAddr) -> String {
    format!("[telemetry]\ntraces = \"http://{collector}\"\n")
}

fn run(server: &Server, traceparent: Option<&str>) -> Answer {
    let request = server.post("/api/v1/executions").key(ADMIN);
    let request = traceparent.map_or(request.clone(), |value| request.header("traceparent", value));
    let answer = request.json(&json!({ "language": "py", "code": "print(6 * 7)" })).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

fn counted(server: &Server, what: &str) -> u64 {
    let page = server.get("/metrics").key(ADMIN).send().text();
    let name = format!("redoma_telemetry_spans_{what}_total ");
    page.lines().find_map(|line| line.strip_prefix(&name)).expect("it is there").parse().unwrap()
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let found = span["attributes"].as_array().unwrap().iter().find(|pair| pair["key"] == key)?;
    found["value"]["stringValue"].as_str().or(found["value"]["intValue"].as_str())
}

fn times(span: &Value) -> (u128, u128) {
    let of = |key: &str| span[key].as_str().unwrap().parse().unwrap();
    (of("startTimeUnixNano"), of("endTimeUnixNano"))
}

/// The span of the request, and those below it in the order in which they began.
fn family(spans: &[Value], route: &str) -> (Value, Vec<Value>) {
    let is_it = |span: &&Value| attribute(span, "http.route") == Some(route);
    let server: Vec<_> = spans.iter().filter(is_it).collect();
    assert_eq!(server.len(), 1, "{route}: {spans:#?}");
    let is_below = |span: &&Value| span["parentSpanId"] == server[0]["spanId"];
    let mut children: Vec<_> = spans.iter().filter(is_below).cloned().collect();
    children.sort_by_key(times);
    (server[0].clone(), children)
}

fn assert_within(server: &Value, children: &[Value], names: &[&str]) {
    let found: Vec<_> = children.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(found, names, "{server:#}");
    let (begun, ended) = times(server);
    let mut last = begun;
    for child in children {
        let (from, to) = times(child);
        assert!(last <= from && from <= to && to <= ended, "{child:#}\n{server:#}");
        last = to;
        assert_eq!((&child["traceId"], &child["kind"]), (&server["traceId"], &json!(1)));
        assert_ne!(child["spanId"], server["spanId"]);
    }
}

#[test]
fn a_collector_gets_the_way_of_each_request_and_nobodys_name() {
    let (address, exports) = collector(&[OK]);
    let (_home, mut server) = serve(&format!(
        "{}headers = {{ authorization = \"Bearer the-canary-token\" }}\nservice_name = \"redoma-test\"\n\
         [profiles.default.policy]\nmode = \"on\"\n",
        telemetry(address)
    ));
    let before = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    run(&server, Some(&format!("00-{TRACE}-{CALLER}-01")));
    // A cell, with its events as they come.
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/executions");
    let body =
        json!({ "language": "py", "code": "canary_code = 'canary-file'; open('canary-file', 'w').close()" });
    let request = server.post(&path).key(ADMIN).header("accept", "text/event-stream");
    assert!(request.json(&body).send().text().contains("event: result"));
    let key = server.key("client", "canary-client");
    let slow = json!({ "lang": "bash", "code": "sleep 9", "timeout": 300, "user_id": "canary-user" });
    assert_eq!(server.exec(&key, &slow).status, 200);
    // Not kept: not let in, not sampled by its caller, runs nothing.
    assert_eq!(server.post("/v1/exec/programmatic").json(&json!({})).send().status, 401);
    run(&server, Some(&format!("00-{}-{CALLER}-00", TRACE.replace('4', "5"))));
    assert_eq!(server.get(&path).key(ADMIN).send().status, 200);
    assert_eq!(server.stop(), Some(0));
    let after = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();

    let export = exports.recv_timeout(Duration::from_secs(1)).unwrap();
    if let Some(file) = std::env::var_os("REDOMA_KEEP_TRACES") {
        std::fs::write(file, &export.body).unwrap();
    }
    assert!(export.head.starts_with("post /v1/traces http/1.1\r\n"), "{}", export.head);
    for header in ["content-type: application/json", "authorization: bearer the-canary-token"] {
        assert!(export.head.contains(header), "{}", export.head);
    }
    let body: Value = serde_json::from_str(&export.body).unwrap();
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(*service, json!({ "key": "service.name", "value": { "stringValue": "redoma-test" } }));
    let spans = export.spans();
    assert!(exports.try_recv().is_err(), "one batch");

    let phases = ["queue", "policy", "assign", "run", "harvest"];
    let (span, children) = family(&spans, "/api/v1/executions");
    assert_within(&span, &children, &phases);
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
    assert_eq!((&span["name"], &span["kind"]), (&json!("POST /api/v1/executions"), &json!(2)));
    assert_eq!(span["status"], json!({}));
    assert!(before <= times(&span).0 && times(&span).1 <= after);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("redoma.language", "py"),
        ("redoma.profile", "default"),
        ("redoma.isolation", "native"),
        ("redoma.outcome", "ok"),
    ] {
        assert_eq!(attribute(&span, key), Some(value), "{key}");
    }
    assert_eq!(attribute(&children[3], "redoma.outcome"), Some("ok"));

    let (span, children) = family(&spans, "/api/v1/sessions/{session}/executions");
    assert_within(&span, &children, &["policy", "queue", "assign", "run", "harvest"]);
    assert!(span.get("parentSpanId").is_none() && span["traceId"] != TRACE, "a trace of its own");
    let (span, children) = family(&spans, "/v1/exec");
    assert_within(&span, &children, &phases);
    assert_eq!(attribute(&span, "redoma.outcome"), Some("timeout"));
    assert_eq!(spans.len(), 18, "{spans:#?}");

    for word in ["canary", &session, "127.0.0.1", ADMIN, &key, "sleep"] {
        assert!(!export.body.contains(word), "{word}");
    }
    let log = server.log();
    assert!(!log.contains("the-canary-token"));
    let line = log.lines().find(|line| line.contains(TRACE)).expect("the request's line");
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["trace_id"], &line["path"]), (&json!(TRACE), &json!("/api/v1/executions")));
}

#[test]
fn programs_over_sockets_and_those_that_wait_for_tools_are_followed_too() {
    let (address, exports) = collector(&[OK]);
    let (_home, mut server) = serve(&telemetry(address));
    let session = server.session(ADMIN);
    let path = format!("/api/v1/sessions/{session}/executions/ws");
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let mut socket = WebSocket::open(server.get(&path).key(ADMIN).header("traceparent", &parent));
    socket.say(&json!({ "language": "py", "code": "1" }));
    while socket.hear()["event"] != "result" {}
    drop(socket);

    let kernels = server.post("/jupyter/api/kernels").key(ADMIN).json(&json!({ "name": "python3" })).send();
    let kernel = kernels.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/jupyter/api/kernels/{kernel}/channels");
    let mut socket = WebSocket::open(server.get(&path).key(ADMIN));
    socket.say(&json!({
        "header": { "msg_id": "1", "msg_type": "execute_request", "username": "u", "session": "s", "date": "", "version": "5.3" },
        "parent_header": {}, "metadata": {}, "content": { "code": "1" }, "channel": "shell",
    }));
    while socket.hear()["msg_type"] != "execute_reply" {}
    drop(socket);

    let programmatic =
        |body: &Value| server.post("/v1/exec/programmatic").key(ADMIN).json(body).send().json();
    let begun = programmatic(&json!({ "code": "print(await ask())", "tools": [{ "name": "ask" }] }));
    std::thread::sleep(Duration::from_millis(300));
    let results = json!([{ "call_id": begun["tool_calls"][0]["id"], "result": 1 }]);
    let token = &begun["continuation_token"];
    let ended = programmatic(&json!({ "continuation_token": token, "tool_results": results }));
    assert_eq!(ended["status"], "completed", "{begun} {ended}");
    assert_eq!(server.stop(), Some(0));

    let mut spans = exports.recv_timeout(Duration::from_secs(1)).unwrap().spans();
    let cell = ["policy", "queue", "assign", "run", "harvest"];
    let (span, children) = family(&spans, "/api/v1/sessions/{session}/executions/ws");
    assert_within(&span, &children, &cell);
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
    assert_eq!(span["name"], "GET /api/v1/sessions/{session}/executions/ws");
    let (span, children) = family(&spans, "/jupyter/api/kernels/{kernel}/channels");
    // A turn among all, and one of the engine's.
    assert_within(&span, &children, &["queue", "policy", "queue", "assign", "run", "harvest"]);

    let is_tools = |span: &Value| attribute(span, "http.route") == Some("/v1/exec/programmatic");
    let (first, second) = {
        let mut found: Vec<_> = spans.iter().filter(|span| is_tools(span)).cloned().collect();
        assert_eq!(found.len(), 2);
        found.sort_by_key(times);
        (found[0].clone(), found[1].clone())
    };
    spans.retain(|span| !is_tools(span) || *span == first);
    let (_, children) = family(&spans, "/v1/exec/programmatic");
    let run = children.iter().find(|span| span["name"] == "run").expect("the program");
    let (from, to) = times(run);
    assert!(to - from > 300_000_000, "it waited for its tool");
    // The first request ended with its answer, while the program went on.
    assert!(times(&first).1 < to && times(&first).1 < times(&second).0, "{first:#}\n{second:#}");
}

/// Takes some seconds: that is how long spans may wait before they are sent.
#[test]
fn a_busy_collector_is_asked_once_more_when_it_wants_to_be() {
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n";
    let (address, exports) = collector(&[BUSY, OK, BUSY, BUSY, OK]);
    let (_home, server) = serve(&telemetry(address));
    run(&server, None);
    let first = exports.recv_timeout(Duration::from_secs(8)).unwrap();
    let begun = Instant::now();
    let again = exports.recv_timeout(Duration::from_secs(8)).unwrap();
    assert!(begun.elapsed() > Duration::from_millis(1800), "{:?}", begun.elapsed());
    assert_eq!(first.body, again.body);
    let spans = first.spans().len() as u64;
    until(|| counted(&server, "sent") == spans);
    assert_eq!(counted(&server, "dropped"), 0);
    // Twice is enough.
    run(&server, None);
    for _ in 0..2 {
        exports.recv_timeout(Duration::from_secs(8)).unwrap();
    }
    until(|| counted(&server, "dropped") == spans);
    assert_eq!(counted(&server, "sent"), spans);
    assert!(server.log().contains("it answered 503"), "{}", server.log());
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come to that");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_collector_that_refuses_costs_spans_and_nothing_else() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_home, server) = serve(&telemetry(nobody));
    run(&server, None);
    until(|| {
        run(&server, None);
        counted(&server, "dropped") >= 5
    });
    assert_eq!(counted(&server, "sent"), 0);
    assert_eq!(server.log().matches("traces can't be sent").count(), 1, "said once");
}

/// The kernel takes its connections, and nobody ever answers.
#[test]
fn while_a_collector_hangs_requests_are_answered_and_the_server_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rules = "[profiles.default.policy]\nmode = \"on\"\n";
    let (_home, mut server) = serve(&format!("{}{rules}", telemetry(listener.local_addr().unwrap())));
    // Programs that are denied are quick, and two spans each: enough for a batch, and for more than may wait.
    let denied =
        server.post("/api/v1/executions").key(ADMIN).json(&json!({ "language": "bash", "code": "rm -rf /" }));
    for number in 0..1500 {
        assert_eq!(denied.send().json()["ending"], "denied");
        if number % 300 == 0 {
            run(&server, None);
        }
    }
    assert!(counted(&server, "dropped") > 0, "more than may wait");
    assert_eq!(counted(&server, "sent"), 0);
    assert_eq!(server.stop(), Some(0));
    assert!(server.log().contains("the last spans were not sent"), "{}", server.log());
}

#[test]
fn secrets_of_telemetry_are_shown_nowhere() {
    let (address, _exports) = collector(&[OK]);
    let config = format!("{}headers = {{ authorization = \"the-canary-token\" }}\n", telemetry(address));
    let (home, server) = serve(&config);
    let mut shown = String::new();
    for arguments in [&["config", "show"][..], &["config", "show", "--json"], &["config", "check"]] {
        let output = home.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        shown += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    for path in ["/api/v1/profiles", "/api/v1/profile", "/openapi.json", "/metrics"] {
        let answer = server.get(path).key(ADMIN).send();
        assert_eq!(answer.status, 200, "{path}");
        shown += &answer.text();
    }
    // Of another configuration it is told that it has changed, and no more.
    let profile = "[profiles.default]\npreload = []\n";
    home.configure(&format!("{}\n{profile}", config.replace("the-canary-token", "another-canary-token")));
    let answer = server.post("/api/v1/admin/reload").key(ADMIN).send();
    assert_eq!(answer.json()["needs_restart"], json!(["telemetry"]), "{}", answer.text());
    home.configure(&format!("{}\n{profile}", config.replace("= \"the-canary-token\"", "= [\"canary\"]")));
    let answer = server.post("/api/v1/admin/reload").key(ADMIN).send();
    assert!(answer.status >= 400 && answer.text().contains("table of texts"), "{}", answer.text());
    shown += &answer.text();
    shown += &server.log();
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn nobody_is_called_who_is_not_configured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let home = Home::new(Mode::available()[0]);
    // A share and a name, and no address. What other programs look for in the environment is not ours.
    home.configure("[telemetry]\nsample = 1.0\nservice_name = \"x\"\n[profiles.default]\npreload = []\n");
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut server = home.serve_with(|command| command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &address));
    server.wait_until_ready();
    run(&server, Some(&format!("00-{TRACE}-{CALLER}-01")));
    // The server closes a client's connection a moment after its answer; the socket that it listens on stays.
    wait_until("only the listening socket is left", || server.connections() == 1);
    assert_eq!((counted(&server, "sent"), counted(&server, "dropped")), (0, 0));
    assert_eq!(server.stop(), Some(0));
    assert!(listener.accept().is_err());
    assert!(!server.log().contains("trace_id"));
}

/// One answer before the other, without end.
#[test]
fn a_collector_that_never_comes_to_the_point_is_not_listened_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_home, mut server) = serve(&telemetry(listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Until it is not wanted any more, and not for longer than the test.
            let deadline = Instant::now() + Duration::from_mins(1);
            while Instant::now() < deadline
                && stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n").is_ok()
            {}
        }
    });
    run(&server, None);
    until(|| counted(&server, "dropped") > 0);
    run(&server, None);
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// Nor does it help to want to be traced.
#[test]
fn who_runs_nothing_leaves_no_span() {
    let (address, exports) = collector(&[OK]);
    let (_home, mut server) = serve(&format!("{}sample = 0.0\n", telemetry(address)));
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    for body in ["{bad", "{}", r#"{"language":"cobol","code":""}"#] {
        let request = server.post("/api/v1/executions").key(ADMIN).header("traceparent", &traceparent);
        let answer = request.body("application/json", body).send();
        assert!((400..500).contains(&answer.status), "{body}: {}", answer.text());
    }
    run(&server, Some(&traceparent));
    server.stop();
    let spans: Vec<Value> = exports.try_iter().flat_map(|export| export.spans()).collect();
    let requests = spans.iter().filter(|span| span["parentSpanId"] == CALLER).count();
    assert_eq!(requests, 1, "{spans:#?}");
}
