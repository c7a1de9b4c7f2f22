//! Rates, turns and overload as clients see them: a server on a real port, with a backend whose programs do nothing, so that it is known
//! exactly when each of them runs and ends.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use redoma_engine::interpreter::{
    FileTypes, GovernedProfile, Interpreter, InterpreterParts, NewKey, ProfileBook,
};
use redoma_engine::{
    Assigned, Backend, Cancel, Concurrency, Engine, Kernel, KernelRequest, Observer, Pressure,
    PressureLimits, RunError, RunRequest, Sharing,
};
use redoma_jail::cgroup::GroupUsage;
use redoma_model::{Owner, Principal, Profile, Rates, RatesPatch, Role, RunReport};
use redoma_server::{App, Listening, ServerConfig};
use redoma_store::{Quota, Store};
use serde_json::{Value, json};

/// Programs that end when they are told to.
#[derive(Debug)]
struct Stage {
    is_open: Mutex<bool>,
    opened: Condvar,
    running: AtomicUsize,
    pressure: Option<Arc<Pressure>>,
}

#[derive(Debug)]
struct FakeBackend(Arc<Stage>);

#[derive(Debug)]
struct FakeRun<'a>(&'a Stage);

impl Backend for FakeBackend {
    fn prepare(&self) -> Result<(), RunError> {
        Ok(())
    }

    fn assign<'a, 'r: 'a>(&'a self, _: RunRequest<'r>) -> Result<Box<dyn Assigned + 'a>, RunError> {
        Ok(Box::new(FakeRun(&self.0)))
    }

    fn start_kernel(&self, _: &KernelRequest<'_>) -> Result<Box<dyn Kernel>, RunError> {
        Err(RunError::ShuttingDown)
    }

    fn status(&self) -> redoma_engine::backend::Status {
        redoma_engine::backend::Status::default()
    }

    fn pressure(&self) -> Option<&Arc<Pressure>> {
        self.0.pressure.as_ref()
    }
}

impl Assigned for FakeRun<'_> {
    fn run(&mut self, _: &mut dyn Observer, cancel: &Cancel) -> Result<RunReport, RunError> {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.0.is_open.lock().unwrap();
        while !*is_open && !cancel.is_cancelled() {
            is_open = self.0.opened.wait_timeout(is_open, Duration::from_millis(10)).unwrap().0;
        }
        drop(is_open);
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        Ok(report())
    }

    fn took(&self) -> redoma_engine::meter::Took {
        redoma_engine::meter::Took::default()
    }

    fn kill(&mut self) {}

    fn usage(&self) -> GroupUsage {
        GroupUsage::default()
    }
}

/// Each takes two seconds of processor time.
fn report() -> RunReport {
    let of = |used: u64| json!({ "used": used, "limit": 1_000_000 });
    let none = json!({ "text": "", "bytes": 0, "truncated": false, "valid_utf8": true });
    serde_json::from_value(json!({
        "language": "py", "profile": "default", "ending": "exited", "exit_code": 0, "signal": null, "signal_number": null,
        "limit": null, "limits_hit": [], "stdout": none, "stderr": none,
        "usage": {
            "wall_ms": of(1), "cpu_ms": of(2000), "cpu_user_ms": null, "cpu_system_ms": null, "memory_peak_bytes": null,
            "pids_peak": null, "disk_bytes": of(0), "files": of(0), "stdout_bytes": of(0), "stderr_bytes": of(0),
        },
        "files": [], "skipped_files": [], "unlisted_files": 0,
        "isolation": {
            "engine": "none", "mode": "none", "layers": [], "missing": [], "cgroup_version": null, "landlock_abi": null,
            "host_uid": 0,
        },
    }))
    .unwrap()
}

struct Served {
    address: SocketAddr,
    app: Arc<App>,
    stage: Arc<Stage>,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

fn serve(rates: &str, change: impl FnOnce(&mut ServerConfig)) -> Served {
    serve_under(rates, None, change)
}

fn serve_under(
    rates: &str,
    pressure: Option<PressureLimits>,
    change: impl FnOnce(&mut ServerConfig),
) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let quota = Quota {
        session_bytes: 1 << 30,
        session_files: 1000,
        owner_bytes: 1 << 30,
        owner_files: 1000,
        owner_sessions: 1000,
    };
    let store = Arc::new(Store::open(folder.path(), quota).unwrap());
    let stage = Arc::new(Stage {
        is_open: Mutex::new(true),
        opened: Condvar::new(),
        running: AtomicUsize::new(0),
        pressure: pressure.map(|limits| Arc::new(Pressure::new(limits))),
    });
    let mut config =
        ServerConfig { rates_file: Some(folder.path().join("rates.json")), ..ServerConfig::default() };
    change(&mut config);
    let rates = Rates::default().with(&toml::from_str::<RatesPatch>(rates).unwrap());
    let governed = GovernedProfile::new(Profile { rates, ..Profile::default() }, BTreeMap::new()).unwrap();
    let interpreter = Interpreter::new(InterpreterParts {
        engine: Engine::new(Box::new(FakeBackend(Arc::clone(&stage))), config.concurrency),
        store,
        profiles: ProfileBook::new(vec![governed], Vec::new()).unwrap(),
        file_types: FileTypes::default(),
        most_upload: 1 << 20,
        most_kernels: 8,
        audit: None,
        readers: None,
        tell: |_| {},
    });
    let app = App::new(interpreter, config).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let listening = runtime.block_on(Listening::on("127.0.0.1:0".parse().unwrap(), &app)).unwrap();
    let address = listening.address();
    runtime.spawn(listening.serve(Arc::clone(&app), std::future::pending()));
    Served { address, app, stage, runtime, folder }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Served {
    fn key(&self, role: Role, user: Option<&str>) -> String {
        let owner = Owner { client: "chat".to_owned(), user: user.map(ToOwned::to_owned) };
        let new = NewKey { role, owner, label: None, profile: None };
        let admin = Principal::without_key(Role::Admin, new.owner.clone(), true);
        self.app.interpreter().add_key(&admin, new).unwrap().1.reveal().to_owned()
    }

    fn send(&self, key: &str, path: &str, more: &str, kind: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-Key: {key}\r\n{more}Content-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(body);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn exec(&self, key: &str) -> Answer {
        let body = json!({ "lang": "py", "code": "print(1)" }).to_string();
        self.send(key, "/v1/exec", "", "application/json", body.as_bytes())
    }

    fn exec_from(&self, key: &str, forwarded: &str) -> Answer {
        let body = json!({ "lang": "py", "code": "print(1)" }).to_string();
        let more = format!("X-Forwarded-For: {forwarded}\r\n");
        self.send(key, "/v1/exec", &more, "application/json", body.as_bytes())
    }

    fn execute_natively(&self, key: &str) -> Answer {
        let body = json!({ "language": "py", "code": "print(1)" }).to_string();
        self.send(key, "/api/v1/executions", "", "application/json", body.as_bytes())
    }

    fn upload(&self, key: &str, bytes: usize) -> Answer {
        let content = "x".repeat(bytes);
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n{content}\r\n--b--\r\n"
        );
        self.send(key, "/v1/upload", "", "multipart/form-data; boundary=b", body.as_bytes())
    }

    fn hold(&self) {
        *self.stage.is_open.lock().unwrap() = false;
    }

    fn let_go(&self) {
        *self.stage.is_open.lock().unwrap() = true;
        self.stage.opened.notify_all();
    }

    fn on_stage(&self) -> usize {
        self.stage.running.load(Ordering::SeqCst)
    }

    fn until_on_stage(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.on_stage() != count {
            assert!(Instant::now() < deadline, "{} run, not {count}", self.on_stage());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_rate_is_told_in_headers_and_then_refused_in_each_facades_words() {
    let server = serve("[user]\nexecutions = \"3/h\"\n", |_| {});
    let ana = server.key(Role::User, Some("ana"));
    let first = server.exec(&ana);
    assert_eq!(first.status, 200, "{}", first.body);
    for prefix in ["RateLimit", "X-RateLimit"] {
        assert_eq!(first.header(&format!("{prefix}-Limit")), Some("3"), "{}", first.head);
        assert_eq!(first.header(&format!("{prefix}-Remaining")), Some("2"));
        assert_eq!(first.header(&format!("{prefix}-Reset")), Some("1200"));
    }
    assert_eq!(server.execute_natively(&ana).header("ratelimit-remaining"), Some("1"));
    assert_eq!(server.exec(&ana).header("ratelimit-remaining"), Some("0"));

    let refused = server.exec(&ana);
    assert_eq!((refused.status, refused.header("ratelimit-remaining")), (429, Some("0")));
    let body = refused.json();
    assert_eq!(body["error"], "rate_limited");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(body["retry_after_seconds"], seconds);
    assert!((1190..=1200).contains(&seconds), "{seconds}");
    let message = body["message"].as_str().unwrap();
    assert!(message.starts_with("the limit of 3/h executions for this user is reached"), "{message}");

    let problem = server.execute_natively(&ana);
    assert_eq!((problem.status, problem.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(problem.json()["code"], "rate_limited");

    // Neither for others nor for what is no execution, nor for admins.
    assert_eq!(server.exec(&server.key(Role::User, Some("ben"))).status, 200);
    assert_eq!(server.upload(&ana, 10).status, 200);
    let admin = server.key(Role::Admin, None);
    let answers: Vec<_> = (0..5).map(|_| server.exec(&admin)).collect();
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.header("ratelimit-limit").is_none()));
}

#[test]
fn a_stream_of_events_is_refused_before_it_begins() {
    let server = serve("[key]\nexecutions = \"1/h\"\n", |_| {});
    let ana = server.key(Role::User, Some("ana"));
    let body = json!({ "language": "py", "code": "print(1)" }).to_string();
    let ask = || {
        let more = "Accept: text/event-stream\r\n";
        server.send(&ana, "/api/v1/executions", more, "application/json", body.as_bytes())
    };
    let first = ask();
    assert_eq!((first.status, first.header("ratelimit-remaining")), (200, Some("0")));
    assert_eq!(ask().status, 429);
}

#[test]
fn uploads_have_rates_and_bytes_of_their_own() {
    let server = serve("[user]\nuploads = \"3/h\"\nbytes_per_day = \"100KiB\"\n", |_| {});
    let ana = server.key(Role::User, Some("ana"));
    assert_eq!(server.upload(&ana, 90 << 10).header("ratelimit-remaining"), Some("2"));
    let refused = server.upload(&ana, 80 << 10);
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.json()["message"].as_str().unwrap().contains("has stored its 100KiB for today"));
    assert_eq!(server.exec(&ana).status, 429, "programs could leave more");
    let ben = server.key(Role::User, Some("ben"));
    let statuses: Vec<_> = (0..4).map(|_| server.upload(&ben, 10).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[test]
fn processor_time_of_a_day_is_used_up_and_stays_so_after_a_restart() {
    let rates = "[user]\ncpu_per_day = \"3s\"\n";
    let server = serve(rates, |_| {});
    let ana = server.key(Role::User, Some("ana"));
    assert_eq!([server.exec(&ana).status, server.exec(&ana).status], [200, 200], "two seconds each");
    let refused = server.exec(&ana);
    assert_eq!(refused.status, 429);
    assert!(
        refused.json()["message"].as_str().unwrap().contains("its 3s of processor time"),
        "{}",
        refused.body
    );

    let file = server.folder.path().join("rates.json");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\"cpu_ms\":4000")) {
        assert!(Instant::now() < deadline, "it is not written down");
        std::thread::sleep(Duration::from_millis(50));
    }
    // As after a kill: what is on disk now is all that there is.
    let copy = std::fs::read(&file).unwrap();
    let again = serve(rates, |config| std::fs::write(config.rates_file.as_ref().unwrap(), &copy).unwrap());
    assert_eq!(again.exec(&again.key(Role::User, Some("ana"))).status, 429);
    assert_eq!(again.exec(&again.key(Role::User, Some("ben"))).status, 200);
}

#[test]
fn programs_at_once_are_counted_until_they_end() {
    let server = serve("[user]\nconcurrency = 2\n", |_| {});
    let ana = server.key(Role::User, Some("ana"));
    server.hold();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..2).map(|_| scope.spawn(|| server.exec(&ana).status)).collect();
        server.until_on_stage(2);
        assert_eq!(server.exec(&ana).status, 429);
        server.let_go();
        assert!(running.into_iter().all(|run| run.join().unwrap() == 200));
    });
    assert_eq!(server.exec(&ana).status, 200);
    // One whose client has gone counts as long as it really runs, and no longer.
    server.hold();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let body = json!({ "lang": "py", "code": "print(1)" }).to_string();
    let head = format!(
        "POST /v1/exec HTTP/1.1\r\nHost: x\r\nX-API-Key: {ana}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    server.until_on_stage(1);
    drop(stream);
    server.until_on_stage(0);
    server.let_go();
    let statuses: Vec<_> = (0..3).map(|_| server.exec(&ana).status).collect();
    assert_eq!(statuses, [200; 3]);
}

#[test]
fn addresses_are_those_of_clients_only_behind_a_trusted_proxy() {
    let rates = "[address]\nexecutions = \"2/h\"\n";
    let behind = serve(rates, |config| config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]);
    let ana = behind.key(Role::User, Some("ana"));
    let from = |address: &str| behind.exec_from(&ana, address).status;
    assert_eq!([from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.1")], [200, 200, 429]);
    assert_eq!(
        [from("192.0.2.2"), from("2001:db8::1"), from("2001:db8::2"), from("2001:db8::3")],
        [200, 200, 200, 429]
    );
    assert_eq!(from("192.0.2.7, 192.0.2.1"), 429, "what a client writes itself does not count");

    let alone = serve(rates, |_| {});
    let ana = alone.key(Role::User, Some("ana"));
    let from = |address: &str| alone.exec_from(&ana, address).status;
    assert_eq!([from("192.0.2.1"), from("192.0.2.2"), from("192.0.2.3")], [200, 200, 429]);
}

#[test]
fn a_queue_full_of_one_users_runs_does_not_delay_anothers() {
    let concurrency =
        Concurrency { running: 4, waiting: 100, patience: Duration::from_secs(30), sharing: Sharing::Fair };
    let server = serve("", |config| config.concurrency = concurrency);
    let (greedy, other) = (server.key(Role::User, Some("greedy")), server.key(Role::User, Some("other")));
    server.hold();
    std::thread::scope(|scope| {
        let flood: Vec<_> = (0..120).map(|_| scope.spawn(|| server.exec(&greedy).status)).collect();
        server.until_on_stage(3);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(server.on_stage(), 3, "one user leaves room");
        let single = scope.spawn(|| server.exec(&other).status);
        server.until_on_stage(4);
        server.let_go();
        assert_eq!(single.join().unwrap(), 200);
        let statuses: Vec<_> = flood.into_iter().map(|run| run.join().unwrap()).collect();
        let count = |status: u16| statuses.iter().filter(|known| **known == status).count();
        assert_eq!((count(200), count(429)), (78, 42), "3 ran, 75 waited, the others were told at once");
    });
    drop(server.runtime);
}

#[test]
fn when_the_host_has_no_room_nothing_is_started_and_all_are_told() {
    let limits = PressureLimits { pids_critical: 0, ..PressureLimits::default() };
    let server = serve_under("[user]\nexecutions = \"5/h\"\n", Some(limits), |_| {});
    let ana = server.key(Role::User, Some("ana"));
    let refused = server.exec(&ana);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(refused.json()["error"], "overloaded");
    assert_eq!(refused.header("ratelimit-remaining"), None, "what is not run is not counted");
    assert_eq!(server.execute_natively(&ana).json()["code"], "overloaded");
    assert_eq!(server.upload(&ana, 10).status, 200, "what needs no sandbox goes on");
}
