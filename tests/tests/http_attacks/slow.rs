//! Clients that send slowly, do not read, leave, or come in thousands.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::http::{Request, read_answer};
use redoma_tests::server::{ADMIN, Server};
use redoma_tests::websocket::WebSocket;
use serde_json::json;

use crate::{World, download, text, upload};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// Everybody else is served as if nothing were.
#[track_caller]
fn assert_others_are_served(server: &Server, what: &str) {
    let start = Instant::now();
    let body = json!({ "lang": "py", "code": "print(6 * 7)" });
    for request in [
        server.get("/healthz"),
        server.get("/api/v1/sessions").key(ADMIN),
        server.post("/v1/exec").key(ADMIN).json(&body),
        server.post("/v1/upload").key(ADMIN).form(&[], &[("a.txt", b"a")]),
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream.write_all(&request.bytes()).unwrap();
        let answer = read_answer(&mut stream);
        let answer = answer.unwrap_or_else(|error| panic!("{what}: others wait ({error}): {request:?}"));
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{what}: others waited {:?}", start.elapsed());
}

pub(crate) fn until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Takes half a minute: that is how long a body may take.
#[test]
fn who_sends_slowly_is_given_up() {
    let world = World::new();
    let server = &world.server;
    let start = Instant::now();
    let mut heads: Vec<_> = (0..100).map(|_| connect(server)).collect();
    for head in &mut heads {
        head.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").unwrap();
    }
    let begin = |head: String| {
        let mut stream = connect(server);
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let key = format!("Host: x\r\nX-API-Key: {ADMIN}\r\n");
    let json = begin(format!("POST /v1/exec HTTP/1.1\r\n{key}Content-Length: 1000\r\n\r\n{{"));
    let chunks =
        begin(format!("POST /v1/exec HTTP/1.1\r\n{key}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"));
    let form = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nabc";
    let file = begin(format!("POST /v1/upload HTTP/1.1\r\n{key}{form}"));
    let mut messages = unfinished_messages(server);
    // A byte now and then, so that none of them ever stands still.
    let mut dripping: Vec<TcpStream> =
        heads.iter().chain([&json, &chunks]).map(|stream| stream.try_clone().unwrap()).collect();
    let drip = std::thread::spawn(move || {
        while start.elapsed() < Duration::from_secs(45) && !dripping.is_empty() {
            dripping.retain_mut(|stream| stream.write_all(b"1").is_ok());
            std::thread::sleep(Duration::from_secs(2));
        }
    });
    assert_others_are_served(server, "slow heads");
    for mut head in heads {
        let mut rest = Vec::new();
        let _ = head.read_to_end(&mut rest);
    }
    let heads_took = start.elapsed();
    assert!(heads_took < Duration::from_secs(25), "slow heads were kept for {heads_took:?}");
    for (what, mut stream) in [("JSON", json), ("chunks", chunks), ("a file", file)] {
        let answer = read_answer(&mut stream);
        let status = answer.as_ref().map(|answer| answer.status);
        assert!(status.as_ref().is_ok_and(|status| matches!(status, 400 | 408)), "{what}: {status:?}");
        assert!(start.elapsed() < Duration::from_secs(40), "{what}: kept for {:?}", start.elapsed());
    }
    for (what, socket) in &mut messages {
        let closing = socket.closing();
        assert_eq!(closing.map(|(code, _)| code), Some(1008), "{what}");
        assert!(start.elapsed() < Duration::from_secs(45), "{what}: kept for {:?}", start.elapsed());
    }
    drip.join().unwrap();
    assert!(until(Duration::from_secs(5), || crate::misshapen(&world.home.storage()).is_empty()));
    world.assert_sound();
}

/// WebSockets of both façades with messages whose ends do not come: in one part, and in several with a ping between them.
fn unfinished_messages(server: &Server) -> Vec<(&'static str, WebSocket)> {
    let session = server.session(ADMIN);
    let kernel = server.post("/jupyter/api/kernels").key(ADMIN).json(&json!({})).send().json();
    let native = format!("/api/v1/sessions/{session}/executions/ws");
    let channels = format!("/jupyter/api/kernels/{}/channels", text(&kernel["id"]));
    let one_part = [&[0x81, 0xfe, 0x03, 0xe8, 0, 0, 0, 0][..], &[b' '; 100]].concat();
    let several_parts = [&[0x01, 0x84, 0, 0, 0, 0][..], b"    ", &[0x89, 0x80, 0, 0, 0, 0]].concat();
    let cases = [("native", &native), ("Jupyter", &channels)];
    let open = |(what, path): (&'static str, &String)| {
        [&one_part, &several_parts].map(|bytes| {
            let mut socket = WebSocket::open(server.get(path).key(ADMIN));
            socket.send_raw(bytes);
            (what, socket)
        })
    };
    cases.into_iter().flat_map(open).collect()
}

#[test]
fn a_thousand_open_connections_are_in_nobodys_way() {
    let world = World::with("[server]\nconnections = 2000", |command| command);
    let server = &world.server;
    let before = server.connections();
    // A burst of valid requests from one address: all connections are open before the first request is sent.
    let mut burst: Vec<_> = (0..400).map(|_| connect(server)).collect();
    let request = server.get("/api/v1/sessions").key(ADMIN).bytes();
    for stream in &mut burst {
        stream.write_all(&request).unwrap();
    }
    for (number, stream) in burst.iter_mut().enumerate() {
        let answer =
            read_answer(stream).unwrap_or_else(|error| panic!("request {number} of a burst: {error}"));
        assert_eq!(answer.status, 200, "request {number} of a burst: {}", answer.text());
    }
    drop(burst);
    assert!(until(Duration::from_secs(5), || server.connections() <= before));
    let idle: Vec<_> = (0..1000).map(|_| connect(server)).collect();
    assert_others_are_served(server, "a thousand connections");
    // As many as an address may have that shows no key: a quarter of all.
    let most = before + 500;
    assert!(until(Duration::from_secs(5), || server.connections() <= most), "{}", server.connections());
    drop(idle);
    assert!(
        until(Duration::from_secs(5), || server.connections() <= before),
        "{} are left",
        server.connections()
    );
    world.assert_sound();
}

/// More of them than a pool of threads has threads.
fn hold(server: &Server, count: usize, request: &Request) -> Vec<TcpStream> {
    let bytes = request.bytes();
    (0..count)
        .map(|_| {
            let mut stream = connect(server);
            // Not all of it may be taken.
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = stream.write_all(&bytes);
            stream
        })
        .collect()
}

#[test]
fn those_who_do_not_read_their_downloads_are_in_nobodys_way() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let content = vec![b'x'; 8 << 20];
    let file = upload(server, ADMIN, &session, "big.txt", &content);
    let path = format!("/api/v1/sessions/{session}/files/{file}/content");
    let unread = hold(server, 540, &server.get(&path).key(ADMIN));
    std::thread::sleep(Duration::from_secs(1));
    assert_others_are_served(server, "unread downloads");
    assert_eq!(download(server, ADMIN, &session, &file).body, content);
    drop(unread);
    world.assert_sound();
}

#[test]
fn those_who_do_not_read_their_archives_are_in_nobodys_way() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    upload(server, ADMIN, &session, "big.txt", &vec![b'x'; 8 << 20]);
    let other = server.key("user", "ben");
    let others = server.session(&other);
    upload(server, &other, &others, "small.txt", b"small");
    let unread = hold(server, 540, &server.get(&format!("/api/v1/sessions/{session}/archive")).key(ADMIN));
    std::thread::sleep(Duration::from_secs(1));
    assert_others_are_served(server, "unread archives");
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    stream.write_all(&server.get(&format!("/api/v1/sessions/{others}/archive")).key(&other).bytes()).unwrap();
    let answer =
        read_answer(&mut stream).expect("another user's archive waits for those who do not read theirs");
    assert_eq!(answer.status, 200);
    drop(unread);
    world.assert_sound();
}

#[test]
fn those_who_upload_slowly_are_in_nobodys_way() {
    let world = World::new();
    let server = &world.server;
    let begun = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nabc";
    let head = format!(
        "POST /v1/upload HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: 1000000\r\n\r\n{begun}"
    );
    let slow: Vec<_> = (0..540)
        .map(|_| {
            let mut stream = connect(server);
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    assert_others_are_served(server, "slow uploads");
    drop(slow);
    assert!(until(Duration::from_secs(5), || crate::misshapen(&world.home.storage()).is_empty()));
    world.assert_sound();
}

/// Programs that wait for a turn, or for a tool, by the hundreds: others may have to wait for a turn too, but not all else.
#[test]
fn those_who_start_many_programs_are_in_nobodys_way() {
    let world = World::new();
    let server = &world.server;
    let mark = format!("sleep 20.{}", std::process::id());
    let body = json!({ "lang": "bash", "code": mark, "tools": [{ "name": "t" }] });
    let waiting = hold(server, 540, &server.post("/v1/exec/programmatic").key(ADMIN).json(&body));
    assert!(until(Duration::from_secs(8), || !processes_with(&mark).is_empty()), "none of them runs");
    assert_served(
        server,
        [
            server.get("/api/v1/sessions").key(ADMIN),
            server.post("/v1/upload").key(ADMIN).form(&[], &[("a.txt", b"a")]),
        ],
    );
    drop(waiting);
    assert!(until(Duration::from_secs(10), || processes_with(&mark).is_empty()));
    world.assert_sound();
}

/// Each of these is answered within some seconds, whoever else waits.
#[track_caller]
fn assert_served<const N: usize>(server: &Server, requests: [Request; N]) {
    for request in requests {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream.write_all(&request.bytes()).unwrap();
        let answer =
            read_answer(&mut stream).unwrap_or_else(|error| panic!("others wait ({error}): {request:?}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Each of them has a thread, more than are answered on those of their requests.
#[test]
fn cells_that_wait_keep_nobody_from_being_served() {
    let world = World::new();
    let server = &world.server;
    let paths: Vec<_> = (0..3).map(|_| format!("/api/v1/sessions/{}", server.session(ADMIN))).collect();
    let body = json!({ "language": "py", "code": "import time; time.sleep(60)" });
    let held: Vec<_> = paths
        .iter()
        .map(|path| hold(server, 30, &server.post(&format!("{path}/executions")).key(ADMIN).json(&body)))
        .collect();
    let waiting = || -> u64 {
        let kernel = |path| server.get(&format!("{path}/kernel")).key(ADMIN).send().json();
        paths.iter().map(|path| kernel(path)["waiting"].as_u64().unwrap_or_default()).sum()
    };
    // As many as one owner may have; the others are told so.
    assert!(until(Duration::from_secs(20), || waiting() >= 64), "only {} wait", waiting());
    assert_served(server, [server.get("/healthz"), server.get("/api/v1/sessions").key(ADMIN)]);
    drop(held);
    assert!(until(Duration::from_secs(20), || waiting() == 0), "{} wait for nobody", waiting());
    world.assert_sound();
}

/// Processes of this host whose command line has this in it.
fn processes_with(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| *pid != std::process::id())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(mark)
        })
        .collect()
}

#[test]
fn a_program_whose_client_leaves_is_ended() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let cell = format!("/api/v1/sessions/{session}/executions");
    let routes = ["/v1/exec", "/v1/exec/programmatic", "/api/v1/executions", &cell, "events", "websocket"];
    for (number, route) in routes.into_iter().enumerate() {
        // A process that can be told from all others by its command line.
        let digits: String = random.bytes().filter(u8::is_ascii_digit).take(6).map(char::from).collect();
        let mark = format!("sleep 25.{number}{digits}");
        let code = format!("{mark}\n");
        let native = json!({ "language": "bash", "code": code });
        let path = &cell;
        let mut stream = connect(server);
        match route {
            "websocket" => {
                stream.write_all(&server.get(&format!("{path}/ws")).key(ADMIN).websocket().bytes()).unwrap();
                let mut head = [0; 2048];
                let count = stream.read(&mut head).unwrap();
                assert!(head[..count].starts_with(b"HTTP/1.1 101"));
                stream.write_all(&masked(native.to_string().as_bytes())).unwrap();
            }
            "events" => {
                let request =
                    server.post(path).key(ADMIN).header("Accept", "text/event-stream").json(&native);
                stream.write_all(&request.bytes()).unwrap();
            }
            route => {
                let body = if route.starts_with("/v1") {
                    json!({ "lang": "bash", "code": code, "tools": [] })
                } else {
                    native
                };
                stream.write_all(&server.post(route).key(ADMIN).json(&body).bytes()).unwrap();
            }
        }
        assert!(
            until(Duration::from_secs(8), || !processes_with(&mark).is_empty()),
            "{route}: it did not start"
        );
        drop(stream);
        assert!(
            until(Duration::from_secs(5), || processes_with(&mark).is_empty()),
            "{route}: it goes on: {:?}",
            processes_with(&mark)
        );
    }
    world.assert_sound();
}

/// A text message as a client sends it.
fn masked(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut frame = vec![0x81, 0x80 | 0x7e];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text);
    frame
}

#[test]
fn an_upload_whose_client_leaves_leaves_nothing() {
    let world = World::new();
    let server = &world.server;
    let session = server.session(ADMIN);
    let count = || world.home.incoming_files().len();
    let piece = vec![b'x'; 1 << 20];
    let begin = |path: &str| {
        let mut stream = connect(server);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {ADMIN}\r\nContent-Type: multipart/form-data; boundary=b\r\n\
             Content-Length: 50000000\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nwhole\r\n\
             --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.txt\"\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&piece).unwrap();
        stream
    };
    let streams: Vec<_> = ["/v1/upload", "/v1/upload/batch", &format!("/api/v1/sessions/{session}/files")]
        .into_iter()
        .cycle()
        .take(12)
        .map(begin)
        .collect();
    assert!(until(Duration::from_secs(5), || count() > 0), "nothing was on its way");
    drop(streams);
    assert!(until(Duration::from_secs(5), || count() == 0), "{} files are left", count());
    let files = server.get(&format!("/api/v1/sessions/{session}/files?all=true")).key(ADMIN).send();
    assert_eq!(files.json(), json!({ "files": [] }));
    assert_eq!(text(&server.get("/healthz").send().json()["status"]), "ok");
    world.assert_sound();
}
