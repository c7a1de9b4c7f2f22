//! The server is killed, again and again, at moments that nobody chose, while clients upload, run programs and delete. After
//! each restart everything that was acknowledged is as it was acknowledged, and in the end nothing else is there: no file that
//! nobody knows, no process, no mount, no control group.
//!
//! `REDOMA_TEST_SEED` repeats the choices of an earlier time (not its timing, which is the machine's).

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, host, text_of};
use serde_json::{Value, json};

/// Python with its standard library only: a server starts sooner so.
const CONFIGURATION: &str = "[profiles.default]\npreload = []\n[engine]\npool_floor = 1\n";
const CLIENTS: u64 = 4;

/// Numbers that look random and come again for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.next() % (to - from))
    }
}

/// What is in a file: random bytes, several times over, so that a program can make many of few.
#[derive(Clone, Copy)]
struct Content {
    seed: u64,
    unit: usize,
    times: usize,
}

impl Content {
    fn upload(random: &mut Random) -> Self {
        // Now and then one that takes more than one piece of a request.
        let unit = if random.below(8) == 0 { 200_000 } else { 4000 };
        Self { seed: random.next(), unit: random.below(unit), times: 1 }
    }

    fn artifact(random: &mut Random) -> Self {
        Self { seed: random.next(), unit: 1 + random.below(200), times: 1 + random.below(500) }
    }

    fn unit(self) -> Vec<u8> {
        let mut random = Random(self.seed);
        (0..self.unit).map(|_| random.next().to_le_bytes()[0]).collect()
    }

    fn bytes(self) -> Vec<u8> {
        self.unit().repeat(self.times)
    }

    /// A program that makes it.
    fn program(self, name: &str) -> String {
        format!("open('{name}', 'wb').write(bytes({:?}) * {})\n", self.unit(), self.times)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    There,
    /// Somebody asked for its removal and was not answered.
    Unknown,
    Removed,
}

struct Acknowledged {
    session: String,
    id: String,
    content: Content,
    state: State,
}

impl Acknowledged {
    fn fetch(&self, server: &Server) -> Answer {
        server.get(&format!("/api/v1/sessions/{}/files/{}/content", self.session, self.id)).key(ADMIN).send()
    }

    /// What is wrong with it, if anything.
    fn wrong(&self, server: &Server) -> Option<String> {
        let about = format!("file {} of session {}", self.id, self.session);
        let answer = self.fetch(server);
        match self.state {
            State::There if answer.status != 200 => Some(format!("{about} is lost: {}", answer.text())),
            State::There if answer.body != self.content.bytes() => Some(format!("{about} has other bytes")),
            State::Removed if answer.status != 404 => Some(format!("{about} is back: {}", answer.status)),
            State::Unknown if answer.status == 200 && answer.body != self.content.bytes() => {
                Some(format!("{about} has other bytes"))
            }
            _ => None,
        }
    }
}

/// Everything that the server has ever acknowledged.
#[derive(Default)]
struct Memory {
    files: Mutex<Vec<Acknowledged>>,
}

impl Memory {
    fn remember(&self, session: &str, id: &str, content: Content) {
        let (session, id) = (session.to_owned(), id.to_owned());
        self.files.lock().unwrap().push(Acknowledged { session, id, content, state: State::There });
    }

    fn count(&self, state: State) -> usize {
        self.files.lock().unwrap().iter().filter(|file| file.state == state).count()
    }

    fn set(&self, is_meant: impl Fn(&Acknowledged) -> bool, state: State) {
        let mut files = self.files.lock().unwrap();
        // What is removed stays so, whatever is asked for afterwards.
        let meant = files.iter_mut().filter(|file| file.state != State::Removed && is_meant(file));
        meant.for_each(|file| file.state = state);
    }

    /// Looks at some of them.
    fn sample(&self, server: &Server, random: &mut Random, count: usize) -> Vec<String> {
        let files = self.files.lock().unwrap();
        let last = files.len().saturating_sub(5)..files.len();
        let chosen = (0..count).map(|_| random.below(files.len())).chain(last);
        chosen.filter_map(|at| files.get(at)?.wrong(server)).collect()
    }
}

/// One client, until the server does not answer any more. It has sessions of its own.
struct Client<'a> {
    address: std::net::SocketAddr,
    memory: &'a Memory,
    random: Random,
    /// Of the native API, made when it is needed.
    session: Option<String>,
    is_over: &'a AtomicBool,
}

/// The server has gone.
struct Gone;

impl Client<'_> {
    fn work(mut self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let step = match self.random.below(10) {
                0 | 1 => self.upload_as_librechat(),
                2 | 3 => self.upload(),
                4 | 5 => self.run_as_librechat(),
                6 | 7 => self.run(),
                8 => self.remove_file(),
                _ => self.remove_session(),
            };
            if step.is_err() {
                return;
            }
        }
    }

    fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path).key(ADMIN)
    }

    /// An answer that came whole. Nothing that is not expected of a working server may come.
    fn answer(&self, request: &Request) -> Result<Answer, Gone> {
        let answer = request.try_send().map_err(|_| Gone)?;
        // A sandbox that was killed together with the server may be reported in its last moment; nothing is acknowledged by that.
        if answer.status >= 400 && !self.is_over.load(Ordering::Relaxed) {
            assert!(matches!(answer.status, 429 | 503), "{} {}", answer.status, answer.text());
            return Err(Gone);
        }
        if answer.status >= 400 { Err(Gone) } else { Ok(answer) }
    }

    fn native_session(&mut self) -> Result<String, Gone> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let answer = self.answer(&self.request("POST", "/api/v1/sessions").json(&json!({})))?;
        let session = text(&answer.json()["id"]);
        self.session = Some(session.clone());
        Ok(session)
    }

    /// One file, several, or so many that they are brought to disk together.
    fn contents(&mut self) -> Vec<(String, Content)> {
        let count = [1, 1, 2, 10][self.random.below(4)];
        (0..count).map(|number| (format!("data-{number}.bin"), Content::upload(&mut self.random))).collect()
    }

    fn upload_to(&mut self, path: &str) -> Result<(Value, Vec<(String, Content)>), Gone> {
        let contents = self.contents();
        let bytes: Vec<_> = contents.iter().map(|(name, content)| (name.as_str(), content.bytes())).collect();
        let files: Vec<_> = bytes.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        let answer = self.answer(&self.request("POST", path).form(&[], &files))?;
        Ok((answer.json(), contents))
    }

    fn upload_as_librechat(&mut self) -> Result<(), Gone> {
        let (answer, contents) = self.upload_to("/v1/upload")?;
        let session = text(&answer["session_id"]);
        for ((_, content), file) in contents.iter().zip(list(&answer["files"])) {
            self.memory.remember(&session, &text(&file["fileId"]), *content);
        }
        Ok(())
    }

    fn upload(&mut self) -> Result<(), Gone> {
        let session = self.native_session()?;
        let (answer, contents) = self.upload_to(&format!("/api/v1/sessions/{session}/files"))?;
        for ((_, content), file) in contents.iter().zip(list(&answer["files"])) {
            self.memory.remember(&session, &text(&file["id"]), *content);
        }
        Ok(())
    }

    /// A program that makes two files, and what is in them.
    fn program(&mut self) -> (String, Vec<(String, Content)>) {
        let made: Vec<_> =
            ["one.bin", "two.bin"].map(|name| (name.to_owned(), Content::artifact(&mut self.random))).into();
        (made.iter().map(|(name, content)| content.program(name)).collect(), made)
    }

    fn remember_artifacts(&self, answer: &Value, session: &str, made: &[(String, Content)]) {
        let files = list(&answer["files"]);
        // A run that was cut short by the end of everything may have made less; what it says that it made must be.
        for file in files {
            let name = text(&file["name"]);
            let (_, content) = made.iter().find(|(made, _)| *made == name).expect("only what it made");
            self.memory.remember(session, &text(&file["id"]), *content);
        }
    }

    fn run_as_librechat(&mut self) -> Result<(), Gone> {
        let (code, made) = self.program();
        let answer = self
            .answer(&self.request("POST", "/v1/exec").json(&json!({ "lang": "py", "code": code })))?
            .json();
        assert!(answer["code"] != 0 || list(&answer["files"]).len() == 2, "{answer}");
        self.remember_artifacts(&answer, &text(&answer["session_id"]), &made);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Gone> {
        let session = self.native_session()?;
        let (code, made) = self.program();
        let path = format!("/api/v1/sessions/{session}/executions");
        let body = json!({ "language": "py", "code": code });
        let answer = self.answer(&self.request("POST", &path).json(&body))?.json();
        assert!(answer["exit_code"] != 0 || list(&answer["files"]).len() == 2, "{answer}");
        self.remember_artifacts(&answer, &session, &made);
        Ok(())
    }

    /// One of its own session, so that nobody else is about to ask for it.
    fn remove_file(&mut self) -> Result<(), Gone> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let found = {
            let files = self.memory.files.lock().unwrap();
            let own: Vec<_> =
                files.iter().filter(|file| file.session == session && file.state == State::There).collect();
            own.get(self.random.below(own.len())).map(|file| file.id.clone())
        };
        let Some(id) = found else { return Ok(()) };
        let is_meant = |file: &Acknowledged| file.id == id;
        self.memory.set(is_meant, State::Unknown);
        let path = if self.random.below(2) == 0 {
            format!("/api/v1/sessions/{session}/files/{id}")
        } else {
            format!("/v1/sessions/{session}/objects/{id}")
        };
        self.answer(&self.request("DELETE", &path))?;
        self.memory.set(is_meant, State::Removed);
        Ok(())
    }

    fn remove_session(&mut self) -> Result<(), Gone> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let is_meant = |file: &Acknowledged| file.session == session;
        self.memory.set(is_meant, State::Unknown);
        self.answer(&self.request("DELETE", &format!("/api/v1/sessions/{session}")))?;
        self.memory.set(is_meant, State::Removed);
        Ok(())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Starts a server and kills it before it can listen, or hardly after. Its number.
fn killed_at_its_start(home: &Home, after: Duration) -> u32 {
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--log", "json"]);
    command.env("REDOMA_API_KEY", ADMIN).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(after);
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    pid
}

/// Files in storage, and what lies about in `.incoming`.
fn stored(home: &Home) -> (usize, Vec<PathBuf>) {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let mut all = Vec::new();
    walk(&home.storage(), &mut all);
    let (incoming, blobs): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|path| path.components().any(|part| part.as_os_str() == ".incoming"));
    (blobs.len(), incoming)
}

/// Files that the metadata know, as `redoma sessions list` counts them.
fn known(home: &Home) -> u64 {
    let (code, out, err) = text_of(&mut home.command(&["sessions", "list", "--json", "--limit", "1000000"]));
    assert_eq!(code, 0, "{err}");
    let sessions: Value = serde_json::from_str(&out).unwrap();
    list(&sessions).iter().map(|session| session["files"].as_u64().unwrap()).sum()
}

/// Processes in the groups that servers were started in.
fn processes_of(servers: &BTreeSet<u32>) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| {
        let mut stat = String::new();
        std::fs::File::open(entry.path().join("stat")).ok()?.read_to_string(&mut stat).ok()?;
        Some(stat)
    });
    stats
        .filter(|stat| {
            let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            let numbers: Vec<u32> =
                fields.split_whitespace().skip(1).take(3).filter_map(|field| field.parse().ok()).collect();
            // Parent, group, session.
            numbers.iter().any(|number| servers.contains(number))
        })
        .collect()
}

/// What servers have left on the host.
fn left(home: &Home, servers: &BTreeSet<u32>) -> Vec<String> {
    let mut left: Vec<_> = host::cgroups()
        .into_iter()
        .filter(|(maker, _)| servers.contains(maker))
        .map(|(_, path)| format!("cgroup {}", path.display()))
        .collect();
    left.extend(host::processes_in_groups_of_any(servers));
    left.extend(processes_of(servers));
    for server in servers {
        left.extend(host::run_folders_of(home.path(), *server).iter().map(|path| path.display().to_string()));
    }
    let here = home.path().to_str().unwrap();
    left.extend(host::mounts().into_iter().filter(|mount| mount.contains(here)));
    left
}

#[expect(clippy::print_stderr, reason = "what it did is worth knowing")]
fn killed_again_and_again(mode: Mode, times: usize) {
    if let Some(why) = mode.unavailable() {
        eprintln!("skipped in mode {}: {why}", mode.name());
        return;
    }
    let seed =
        std::env::var("REDOMA_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
        });
    let again = format!("REDOMA_TEST_SEED={seed} repeats it");
    eprintln!("{again}");
    let mut random = Random(seed);
    let home = Home::new(mode).with_one_port();
    home.configure(CONFIGURATION);
    let memory = Memory::default();
    let mut servers = BTreeSet::new();
    let begun = Instant::now();
    for round in 0..times {
        if random.below(5) == 0 {
            servers.insert(killed_at_its_start(&home, random.millis(0, 150)));
        }
        let mut server = home.serve_with(|command| command.process_group(0));
        servers.insert(server.pid());
        let wrong = memory.sample(&server, &mut random, 10);
        assert!(wrong.is_empty(), "restart {round}: {wrong:?}; {again}");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let random = Random(random.next());
                let (memory, is_over) = (&memory, &is_over);
                let client = Client { address: server.address, memory, random, session: None, is_over };
                scope.spawn(|| client.work());
            }
            // Some live until programs run from warm sandboxes.
            if random.below(4) == 0 {
                server.wait_until_ready();
            }
            std::thread::sleep(random.millis(5, 400));
            is_over.store(true, Ordering::Relaxed);
            server.kill();
        });
    }
    eprintln!(
        "{times} times killed in {:?}; {} files are there, {} were removed, of {} nobody was told",
        begun.elapsed(),
        memory.count(State::There),
        memory.count(State::Removed),
        memory.count(State::Unknown)
    );
    assert!(
        memory.count(State::There) > times && memory.count(State::Removed) > 0,
        "nothing was tried; {again}"
    );

    let mut server = home.serve_with(|command| command.process_group(0));
    servers.insert(server.pid());
    let (blobs, incoming) = stored(&home);
    assert_eq!(incoming, Vec::<PathBuf>::new(), "{again}");
    assert_eq!(blobs as u64, known(&home), "files that nobody knows; {again}");
    let files = memory.files.lock().unwrap();
    let wrong: Vec<_> = files.iter().filter_map(|file| file.wrong(&server)).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:?}; {again}", wrong.len(), files.len());
    assert_eq!(
        server.wait_until_ready().exec(ADMIN, &json!({ "lang": "py", "code": "print(1)" })).status,
        200
    );
    assert_eq!(server.stop(), Some(0), "{}", server.log());
    let (code, out, err) = text_of(&mut home.command(&["sessions", "check"]));
    assert_eq!((code, out.as_str()), (0, ""), "{err}; {again}");

    // Janitors need a moment.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left(&home, &servers).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(left(&home, &servers), Vec::<String>::new(), "{again}");
    eprintln!("all looked at after {:?}", begun.elapsed());
}

/// Slow, because the moments in which something can be lost are short, and must be met.
#[test]
fn a_server_of_roots_killed_a_hundred_times_loses_nothing_and_leaves_nothing() {
    killed_again_and_again(Mode::Root, 100);
}

#[test]
fn a_plain_users_server_killed_ten_times_loses_nothing_and_leaves_nothing() {
    killed_again_and_again(Mode::Rootless, 10);
}
