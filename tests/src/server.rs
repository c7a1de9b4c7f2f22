//! A server of one's own, on a port and a data folder that nobody else has.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, Request};
use crate::{Mode, command, data_dir, redoma, redoma_program, test_uid};

/// The key that tests choose for the admin.
pub const ADMIN: &str = "test-admin-key-0123456789abcdef";

/// A data folder for servers, which may outlive several of them. Shares the runtime of all tests.
#[derive(Debug)]
pub struct Home {
    folder: TempDir,
    mode: Mode,
    /// Where its servers listen; 0: wherever there is room.
    port: u16,
}

impl Home {
    pub fn new(mode: Mode) -> Self {
        let folder =
            tempfile::Builder::new().prefix("serve-").tempdir_in(data_dir()).expect("it is writable");
        if mode == Mode::Rootless && rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(test_uid()), Some(test_uid()))
                .expect("root may chown");
        }
        std::os::unix::fs::symlink(data_dir().join("runtimes"), folder.path().join("runtimes"))
            .expect("it is new");
        let home = Self { folder, mode, port: 0 };
        home.configure("");
        home
    }

    /// All its servers have one port, as a user's have. It is below those that the system gives to whoever asks for any.
    #[must_use]
    pub fn with_one_port(mut self) -> Self {
        let likely = 20_000 + std::process::id() % 10_000;
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        self.port =
            (likely..32_000).filter_map(|port| port.try_into().ok()).find(is_free).expect("a free port");
        self
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn storage(&self) -> PathBuf {
        self.path().join("storage")
    }

    /// The folders that the server writes new files into.
    pub fn incoming_folders(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.storage().join(".incoming")).expect("the server made it");
        folders.map(|folder| folder.expect("it can be read").path()).collect()
    }

    /// The files that are being written.
    pub fn incoming_files(&self) -> Vec<PathBuf> {
        let files = |folder: &PathBuf| std::fs::read_dir(folder).expect("the server made it").flatten();
        self.incoming_folders().iter().flat_map(files).map(|file| file.path()).collect()
    }

    /// Writes the configuration. Where that says nothing of a policy there is none: what the walls are for must not depend
    /// on whether somebody has read the program before.
    pub fn configure(&self, text: &str) {
        let none = if text.contains("policy") { "" } else { "\n[profiles.default.policy]\nmode = \"off\"\n" };
        std::fs::write(self.path().join("redoma.toml"), format!("{text}{none}")).expect("it is writable");
    }

    /// Any command of the program on this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = redoma(self.mode, arguments);
        command.env("REDOMA_DATA_DIR", self.path());
        command
    }

    pub fn serve(&self) -> Server {
        self.serve_with(|command| command)
    }

    /// Starts a server and waits until it listens; not until sandboxes wait.
    pub fn serve_with(&self, change: impl FnOnce(&mut Command) -> &mut Command) -> Server {
        self.serve_program(redoma_program(), change)
    }

    /// The same with a program in another place.
    pub fn serve_program(
        &self,
        program: PathBuf,
        change: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Server {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = command(program, self.mode, ["serve", "--listen", &listen, "--log", "json"]);
        command.env("REDOMA_DATA_DIR", self.path());
        command.env("REDOMA_API_KEY", ADMIN);
        change(&mut command).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("redoma starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its log is a pipe")).lines();
        let mut seen = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the server did not start: {}", seen.join("\n"))
            };
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            seen.push(line);
            if entry["message"] == "listening" {
                break entry["address"].as_str().and_then(|text| text.parse().ok()).expect("an address");
            }
        };
        let log = Arc::new(Mutex::new(seen));
        let keep = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                keep.lock().expect("nobody panics with it").push(line);
            }
        });
        Server { child, address, log }
    }
}

/// A server that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Comes back when programs can run.
    pub fn wait_until_ready(&self) -> &Self {
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.get("/readyz").send().status != 200 {
            assert!(Instant::now() < deadline, "the server is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has held at once, in MiB.
    pub fn memory_peak(&self) -> u64 {
        self.status("VmHWM:") >> 10
    }

    /// The memory that it holds, in MiB.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:") >> 10
    }

    /// A line of its status, in KiB.
    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.split_whitespace().next()?.parse().ok()).expect("the server runs")
    }

    /// CPU time that it has used so far, of all its threads.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
        ticks.sum::<f64>() / 100.0
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// The network connections that it holds open.
    pub fn connections(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid());
        let own: std::collections::HashSet<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let inodes = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9));
        inodes.filter(|inode| own.contains(*inode)).count()
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").join("\n")
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }

    /// A new key: `("client", name)` or `("user", name)`.
    pub fn key(&self, role: &str, name: &str) -> String {
        let (client, user) = if role == "user" { ("direct", Some(name)) } else { (name, None) };
        let body = json!({ "role": role, "client": client, "user": user });
        let answer = self.post("/api/v1/keys").key(ADMIN).json(&body).send();
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["secret"].as_str().expect("a secret").to_owned()
    }

    /// Runs a program through LibreChat's route.
    pub fn exec(&self, key: &str, body: &Value) -> Answer {
        self.post("/v1/exec").key(key).json(body).send()
    }

    /// A new session of the native API; its id.
    pub fn session(&self, key: &str) -> String {
        let answer = self.post("/api/v1/sessions").key(key).json(&json!({})).send();
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits for it; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.child.wait().ok().and_then(|status| status.code())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
