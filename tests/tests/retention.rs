//! How long things live, and how a server ends: sessions that go when their time is over and not earlier, keys that are taken
//! back, orderly stops.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::http::Answer;
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, text_of};
use serde_json::{Value, json};

/// Python with its standard library only: a server is ready sooner so.
const QUICK: &str = "[profiles.default]\npreload = []\n[engine]\npool_floor = 1\n";
/// How `redoma` ends when it is `redoma` that can't do something.
const OWN_FAILURE: i32 = 125;
const SWEEPING: &str = "[storage]\nsweep_every = \"200ms\"\n";

fn home(mode: Mode, settings: &str) -> Home {
    let home = Home::new(mode);
    home.configure(&format!("{QUICK}{settings}"));
    home
}

/// The first mode that can be tested here: what is tested has nothing to do with who runs it.
fn any_mode() -> Mode {
    Mode::available()[0]
}

fn new_session(server: &Server, key: &str, body: &Value) -> Value {
    let answer = server.post("/api/v1/sessions").key(key).json(body).send();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap()
}

fn session(server: &Server, id: &str) -> Answer {
    server.get(&format!("/api/v1/sessions/{id}")).key(ADMIN).send()
}

fn upload(server: &Server, key: &str, session: &str, bytes: &[u8]) -> Answer {
    let path = format!("/api/v1/sessions/{session}/files");
    server.post(&path).key(key).form(&[], &[("data.bin", bytes)]).send()
}

fn run(server: &Server, session: &str, code: &str) -> Answer {
    let body = json!({ "language": "py", "code": code });
    server.post(&format!("/api/v1/sessions/{session}/executions")).key(ADMIN).json(&body).send()
}

fn content(server: &Server, session: &str, file: &Value) -> Answer {
    let path = format!("/api/v1/sessions/{session}/files/{}/content", id(file));
    server.get(&path).key(ADMIN).send()
}

fn within(time: Duration, what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + time;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {time:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that has said that it is at work.
struct Running {
    stream: TcpStream,
    seen: Vec<u8>,
}

/// Starts a program in a session, and waits until it is at work.
fn start(server: &Server, session: &str, code: &str) -> Running {
    let code = format!("print('at work', flush=True)\n{code}");
    let request = server
        .post(&format!("/api/v1/sessions/{session}/executions"))
        .key(ADMIN)
        .header("Accept", "text/event-stream")
        .json(&json!({ "language": "py", "code": code }));
    let mut running = Running { stream: TcpStream::connect(server.address).unwrap(), seen: Vec::new() };
    running.stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    running.stream.write_all(&request.bytes()).unwrap();
    while !running.text().contains("at work") {
        assert!(running.read() > 0, "{}", running.text());
    }
    running
}

impl Running {
    fn read(&mut self) -> usize {
        let mut piece = [0; 4096];
        let count = self.stream.read(&mut piece).unwrap();
        self.seen.extend_from_slice(&piece[..count]);
        count
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// What came of it.
    fn finish(mut self) -> Value {
        while self.read() > 0 {}
        let text = self.text();
        let result = text.split("event: result").nth(1).and_then(|rest| rest.split("data: ").nth(1));
        let result =
            result.and_then(|data| data.lines().next()).and_then(|data| serde_json::from_str(data).ok());
        result.unwrap_or_else(|| panic!("no result: {text}"))
    }
}

#[test]
fn a_session_lives_as_long_as_was_asked_for() {
    let home = home(any_mode(), &format!("{SWEEPING}[profiles.brief]\nretention = \"1s\"\n"));
    let server = home.serve();
    let brief = new_session(&server, ADMIN, &json!({ "retention": "1s" }));
    let of_profile = new_session(&server, ADMIN, &json!({ "profile": "brief" }));
    let forever = new_session(&server, ADMIN, &json!({ "retention": "forever", "profile": "brief" }));
    let usual = new_session(&server, ADMIN, &json!({}));
    let prolonged = new_session(&server, ADMIN, &json!({ "retention": "1s" }));
    assert!(brief["expires_at"].is_string() && usual["expires_at"].is_string());
    assert!(forever["expires_at"].is_null());
    for made in [&brief, &of_profile, &forever, &usual, &prolonged] {
        assert_eq!(upload(&server, ADMIN, id(made), b"bytes").status, 201);
        assert!(home.storage().join("_nobody").join(id(made)).exists());
    }
    let change = server.request("PATCH", &format!("/api/v1/sessions/{}", id(&prolonged))).key(ADMIN);
    assert_eq!(change.json(&json!({ "retention": "forever" })).send().status, 200);
    for gone in [&brief, &of_profile] {
        within(Duration::from_secs(10), "its time is over", || session(&server, id(gone)).status == 404);
        within(Duration::from_secs(10), "its files are gone", || {
            !home.storage().join("_nobody").join(id(gone)).exists()
        });
    }
    std::thread::sleep(Duration::from_millis(300));
    for kept in [&forever, &usual, &prolonged] {
        let answer = session(&server, id(kept));
        assert_eq!((answer.status, &answer.json()["files"]), (200, &json!(1)));
    }
    for bad in ["soon", "", "-1s", "1 fortnight"] {
        let answer = server.post("/api/v1/sessions").key(ADMIN).json(&json!({ "retention": bad })).send();
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
}

#[test]
fn using_a_session_keeps_it() {
    let home = home(any_mode(), SWEEPING);
    let server = home.serve();
    let made = new_session(&server, ADMIN, &json!({ "retention": "1500ms" }));
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(upload(&server, ADMIN, id(&made), b"bytes").status, 201);
    }
    // Looking at it is not using it.
    within(Duration::from_secs(10), "its time is over", || session(&server, id(&made)).status == 404);
}

#[test]
fn a_run_keeps_its_session_although_its_time_is_over() {
    for mode in Mode::available() {
        let home = home(mode, SWEEPING);
        let server = home.serve();
        server.wait_until_ready();
        let made = new_session(&server, ADMIN, &json!({ "retention": "1s" }));
        let before = upload(&server, ADMIN, id(&made), b"before").json()["files"][0].clone();
        let code =
            "import time; time.sleep(2.5); open('after.txt', 'w').write(open('data.bin').read() + '+')";
        let answer = run(&server, id(&made), code);
        let made_file = answer.json()["files"][0].clone();
        assert_eq!((answer.status, &made_file["name"]), (200, &json!("after.txt")), "{}", answer.text());
        assert_eq!(content(&server, id(&made), &made_file).text(), "before+");
        assert_eq!(content(&server, id(&made), &before).text(), "before");
        within(Duration::from_secs(10), "its time is over", || session(&server, id(&made)).status == 404);
        within(Duration::from_secs(10), "its files are gone", || {
            !home.storage().join("_nobody").join(id(&made)).exists()
        });
    }
}

#[test]
fn a_session_in_use_is_not_deleted() {
    let home = home(any_mode(), "");
    let server = home.serve();
    server.wait_until_ready();
    let made = new_session(&server, ADMIN, &json!({}));
    let session_id = id(&made);
    let remove = || server.request("DELETE", &format!("/api/v1/sessions/{session_id}")).key(ADMIN).send();
    let running = start(&server, session_id, "import time; time.sleep(1); open('a.txt', 'w').write('a')");
    let refused = remove();
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("in_use")));
    let file = running.finish()["files"][0].clone();
    assert_eq!(content(&server, session_id, &file).text(), "a");
    assert_eq!(remove().status, 204);
    assert_eq!(remove().status, 404);
    assert_eq!(session(&server, session_id).status, 404);
    assert_eq!(content(&server, session_id, &file).status, 404);
    assert!(!home.storage().join("_nobody").join(session_id).exists());
}

#[test]
fn a_users_quota_is_over_all_their_sessions() {
    let home = home(any_mode(), "[storage]\nuser_quota = \"10k\"\nsession_quota = \"8k\"\n");
    let server = home.serve();
    server.wait_until_ready();
    let (ana, ben) = (server.key("user", "ana"), server.key("user", "ben"));
    let session_of = |key: &str| id(&new_session(&server, key, &json!({}))).to_owned();
    let (one, two, bens) = (session_of(&ana), session_of(&ana), session_of(&ben));
    // Exactly what there is room for.
    assert_eq!(upload(&server, &ana, &one, &[1; 6 << 10]).status, 201);
    let refused = upload(&server, &ana, &one, &[1; 3 << 10]);
    assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("quota")), "the session's");
    assert_eq!(upload(&server, &ana, &two, &[1; 4 << 10]).status, 201);
    let refused = upload(&server, &ana, &two, &[1]);
    assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("quota")), "the user's");
    assert_eq!(upload(&server, &ben, &bens, &[1; 8 << 10]).status, 201);
    // A program's artifact that there is no room for is told of, and the program's answer comes all the same.
    let body = json!({ "language": "py", "code": "open('a', 'w').write('x'); print(1)" });
    let path = format!("/api/v1/sessions/{two}/executions");
    let answer = server.post(&path).key(&ana).json(&body).send().json();
    assert_eq!(answer["stdout"]["text"], "1\n");
    assert_eq!(
        (&answer["files"], &answer["refused_files"][0]["name"]),
        (&json!([]), &json!("a")),
        "{answer}"
    );
    // What is removed makes room.
    assert_eq!(server.request("DELETE", &format!("/api/v1/sessions/{one}")).key(&ana).send().status, 204);
    assert_eq!(upload(&server, &ana, &two, &[1; 4 << 10]).status, 201);
    let (code, out, _) = text_of(&mut home.command(&["sessions", "check"]));
    assert_eq!((code, out.as_str()), (0, ""));
}

#[test]
fn sessions_can_be_listed_checked_and_removed_by_command() {
    let home = home(any_mode(), "");
    let mut server = home.serve();
    let ana = server.key("user", "ana");
    let made = new_session(&server, &ana, &json!({ "name": "Ana's plans" }));
    let other = new_session(&server, ADMIN, &json!({}));
    let uploaded = upload(&server, &ana, id(&made), b"12345").json();
    let run = |arguments: &[&str]| text_of(&mut home.command(arguments));

    let (code, out, _) = run(&["sessions", "list"]);
    assert_eq!(code, 0);
    assert!(out.contains(id(&made)) && out.contains(id(&other)) && out.contains("Ana's plans"), "{out}");
    let (_, out, _) = run(&["sessions", "list", "--json", "--user", "ana"]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["bytes"]), (1, &json!(5)));
    assert_eq!(listed[0]["id"], made["id"]);
    assert_eq!(run(&["sessions", "list", "--limit", "1"]).1.lines().count(), 2);

    // The server knows what is in use, so it is the one to ask.
    let (code, _, err) = run(&["sessions", "rm", id(&made)]);
    assert_eq!(code, OWN_FAILURE);
    assert!(err.contains("DELETE /api/v1/sessions"), "{err}");
    assert_eq!(session(&server, id(&other)).status, 200);
    assert_eq!(run(&["sessions", "check"]).0, 0);

    assert_eq!(server.stop(), Some(0));
    let blob = walk(&home.storage()).into_iter().find(|path| path.is_file()).unwrap();
    let sound = std::fs::read(&blob).unwrap();
    std::fs::write(&blob, "other").unwrap();
    let (code, out, _) = run(&["sessions", "check"]);
    assert_eq!(code, 1);
    assert!(out.contains(id(&uploaded["files"][0])), "{out}");
    std::fs::write(&blob, sound).unwrap();
    assert_eq!(run(&["sessions", "check"]).0, 0);

    assert_eq!(run(&["sessions", "rm", id(&made)]).0, 0);
    assert!(!blob.exists());
    let (code, _, err) = run(&["sessions", "rm", id(&made)]);
    assert_eq!(code, OWN_FAILURE);
    assert!(err.contains("there is no session"), "{err}");
    assert_eq!(run(&["sessions", "rm", "../../etc"]).0, OWN_FAILURE);
    let (_, out, _) = run(&["sessions", "list"]);
    assert!(!out.contains(id(&made)) && out.contains(id(&other)), "{out}");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn keys_are_made_and_taken_back_beside_a_running_server() {
    let home = home(any_mode(), "");
    let mut server = home.serve();
    let run = |arguments: &[&str]| text_of(&mut home.command(arguments));
    let is_let_in = |server: &Server, key: &str| server.get("/api/v1/sessions").key(key).send().status;

    let (code, out, err) = run(&["keys", "create", "--client", "librechat", "--label", "first"]);
    assert_eq!(code, 0, "{err}");
    let key = out.trim().to_owned();
    assert!(key.starts_with("rdm_"), "{out}");
    assert_eq!(is_let_in(&server, &key), 200);
    let (_, out, _) = run(&["keys", "list", "--json"]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    assert!(!out.contains(&key) && !out.contains(ADMIN), "{out}");
    let record = listed.as_array().unwrap().iter().find(|record| record["label"] == "first").unwrap();
    assert!(run(&["keys", "list"]).1.contains("librechat"));

    assert_eq!(run(&["keys", "revoke", id(record)]).0, 0);
    assert_eq!(is_let_in(&server, &key), 401);
    assert_eq!(run(&["keys", "revoke", id(record)]).0, OWN_FAILURE);
    assert_eq!(run(&["keys", "revoke", "no such key"]).0, OWN_FAILURE);
    assert_eq!(run(&["keys", "create"]).0, 2);

    // A user's key is that user's; the secret is nowhere.
    let (_, out, _) = run(&["keys", "create", "--user", "ana", "--json"]);
    let made: Value = serde_json::from_str(&out).unwrap();
    let secret = made["secret"].as_str().unwrap();
    assert_eq!(new_session(&server, secret, &json!({}))["user"], "ana");
    for file in walk(home.path()).iter().filter(|file| !file.starts_with(home.path().join("runtimes"))) {
        let bytes = std::fs::read(file).unwrap_or_default();
        for secret in [secret, key.as_str(), ADMIN] {
            let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{}", file.display());
        }
    }
    // The operator's own key is valid again with the next start, even if somebody took it back.
    let (_, out, _) = run(&["keys", "list", "--json"]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    let admin = listed.as_array().unwrap().iter().find(|record| record["role"] == "admin").unwrap();
    assert_eq!(run(&["keys", "revoke", id(admin)]).0, 0);
    assert_eq!(is_let_in(&server, ADMIN), 401);
    assert_eq!(server.stop(), Some(0));
    let server = home.serve();
    assert_eq!(is_let_in(&server, ADMIN), 200);
    assert_eq!(is_let_in(&server, secret), 200);
    assert_eq!(is_let_in(&server, &key), 401);
}

#[test]
fn a_port_that_is_taken_is_waited_for_but_not_for_long() {
    let home = home(Mode::available()[0], "").with_one_port();
    let taken = std::net::TcpListener::bind(("127.0.0.1", home.port())).unwrap();
    let place = format!("127.0.0.1:{}", home.port());
    let mut refused = home.command(&["serve", "--listen", &place]);
    let (code, _, err) = text_of(refused.env("REDOMA_API_KEY", ADMIN));
    assert_eq!(code, OWN_FAILURE, "{err}");
    assert!(err.contains(&format!("can't listen on {place}")) && err.contains("--listen"), "{err}");
    let frees_it = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(taken);
    });
    let server = home.serve();
    frees_it.join().unwrap();
    assert_eq!(server.get("/healthz").send().status, 200);
}

#[test]
fn a_data_folder_has_one_server() {
    for mode in Mode::available() {
        let home = home(mode, "");
        let mut server = home.serve();
        let mut second = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        let (code, _, err) = text_of(second.env("REDOMA_API_KEY", ADMIN));
        assert_eq!(code, OWN_FAILURE, "{err}");
        let line = format!("a server is running on {} already", home.path().display());
        assert!(err.contains(&line) && err.contains("--data-dir"), "{err}");
        assert_eq!(server.get("/healthz").send().status, 200);
        // After a crash the place is free, at once.
        server.kill();
        let mut server = home.serve();
        assert_eq!(server.get("/healthz").send().status, 200);
        assert_eq!(server.stop(), Some(0));
        drop(home.serve());
    }
}

/// Tells a server to end, and meanwhile does something else; its exit code and its log.
fn while_it_stops<T>(mut server: Server, work: impl FnOnce() -> T) -> (Option<i32>, String, T) {
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| (server.stop(), server.log()));
        let done = work();
        let (code, log) = stopping.join().unwrap();
        (code, log, done)
    })
}

#[test]
fn a_server_that_is_told_to_end_lets_programs_finish() {
    for mode in Mode::available() {
        let home = home(mode, "");
        let server = home.serve();
        server.wait_until_ready();
        let made = new_session(&server, ADMIN, &json!({}));
        let code = "import time; time.sleep(1.5); open('a.txt', 'w').write('made'); print('done')";
        let request = server.post("/v1/exec").key(ADMIN).json(&json!({ "lang": "py", "code": code }));
        let waiting = std::thread::spawn(move || request.send().json());
        std::thread::sleep(Duration::from_millis(100));
        let streamed = start(&server, id(&made), code);
        let knock = server.get("/healthz");
        let (exit_code, log, (streamed, waiting)) = while_it_stops(server, || {
            // Nobody new is let in.
            within(Duration::from_secs(1), "the door is closed", || knock.try_send().is_err());
            (streamed.finish(), waiting.join().unwrap())
        });
        assert_eq!(exit_code, Some(0), "{log}");
        assert_eq!(
            (&streamed["ending"], &streamed["exit_code"]),
            (&json!("exited"), &json!(0)),
            "{streamed}"
        );
        assert_eq!(streamed["stdout"]["text"], "at work\ndone\n");
        assert_eq!((&waiting["stdout"], &waiting["code"]), (&json!("done\n"), &json!(0)), "{waiting}");

        let server = home.serve();
        for (session, file) in [
            (id(&made), &streamed["files"][0]),
            (waiting["session_id"].as_str().unwrap(), &waiting["files"][0]),
        ] {
            assert_eq!(content(&server, session, file).text(), "made");
        }
    }
}

#[test]
fn a_program_that_does_not_end_in_time_is_cancelled() {
    let home = home(any_mode(), "[server]\nshutdown_grace = \"500ms\"\n");
    let server = home.serve();
    server.wait_until_ready();
    let made = new_session(&server, ADMIN, &json!({}));
    let code = "import time; open('a.txt', 'w').write('made'); time.sleep(25); print('done')";
    let running = start(&server, id(&made), code);
    let begun = Instant::now();
    let (exit_code, log, answer) = while_it_stops(server, || running.finish());
    assert_eq!(exit_code, Some(0), "{log}");
    assert!(begun.elapsed() >= Duration::from_millis(500) && begun.elapsed() < Duration::from_secs(15));
    // Whoever waited is told, and what the program is said to have made is there.
    assert_eq!(answer["ending"], "cancelled", "{answer}");
    let server = home.serve();
    let kept = server.get(&format!("/api/v1/sessions/{}/files", id(&made))).key(ADMIN).send().json();
    assert_eq!(kept["files"].as_array().map(Vec::len), answer["files"].as_array().map(Vec::len), "{kept}");
}

#[test]
fn a_restart_keeps_everything() {
    let home = home(any_mode(), SWEEPING);
    let mut server = home.serve();
    server.wait_until_ready();
    let (kept, brief) = (
        new_session(&server, ADMIN, &json!({ "name": "kept", "retention": "forever" })),
        new_session(&server, ADMIN, &json!({ "retention": "1s" })),
    );
    let first = upload(&server, ADMIN, id(&kept), b"one").json()["files"][0].clone();
    let second = upload(&server, ADMIN, id(&kept), b"two").json()["files"][0].clone();
    let ran = run(&server, id(&kept), "open('made', 'w').write('made'); print('printed')").json();
    let before = session(&server, id(&kept)).json();
    assert_eq!(server.stop(), Some(0));
    // While nobody serves, time goes on.
    std::thread::sleep(Duration::from_millis(1200));
    let server = home.serve();
    server.wait_until_ready();
    assert_eq!(session(&server, id(&kept)).json(), before);
    assert_eq!(session(&server, id(&brief)).status, 404);
    for (file, text) in [(&first, "one"), (&second, "two"), (&ran["files"][0], "made")] {
        assert_eq!(content(&server, id(&kept), file).text(), text);
    }
    let execution = server.get(&format!("/api/v1/executions/{}", id(&ran))).key(ADMIN).send().json();
    assert_eq!(execution["stdout"]["text"], "printed\n");
    let seen = run(&server, id(&kept), "print(open('data.bin').read(), open('made').read())").json();
    assert_eq!(seen["stdout"]["text"], "two made\n");
}
