//! What whole-program tests share: running `redoma` as root and as a plain user, and looking at the host from outside.
//!
//! | file | subject |
//! |---|---|
//! | `lib.rs` | starting the program, in either mode |
//! | `host.rs` | oracles: what is left on the host after a run |
//! | `host_memory.rs` | the host's kernel memory, and what of it a sandbox was charged for |
//! | `engine.rs` | an engine that lives longer than a run |
//! | `server.rs` | a server of one's own |
//! | `http.rs` | a client that does what it is told |
//! | `websocket.rs` | the same over a WebSocket |
//! | `canary.rs` | files that nobody may read or change |
//! | `cases.rs` | the programs of the attack suite |

pub mod canary;
pub mod cases;
pub mod engine;
pub mod host;
pub mod host_memory;
pub mod http;
pub mod server;
pub mod websocket;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use redoma_model::RunReport;

/// Who runs `redoma`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Root,
    /// A uid without rights, home or name, with a delegated cgroup.
    Rootless,
}

impl Mode {
    pub const BOTH: [Self; 2] = [Self::Root, Self::Rootless];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Rootless => "rootless",
        }
    }

    /// Why this mode can't be tested by whoever runs the tests.
    pub fn unavailable(self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        // Where root can't hand out cgroups (version 2), each mode is tested by starting the tests as that user.
        if std::env::var("REDOMA_TEST_MODES").is_ok_and(|modes| modes != self.name()) {
            return Some("left out by REDOMA_TEST_MODES");
        }
        match self {
            Self::Root if !is_root => Some("needs root"),
            _ => None,
        }
    }

    /// The modes that can be tested here; says on stderr which are left out.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    pub fn available() -> Vec<Self> {
        let (out, available): (Vec<Self>, Vec<Self>) =
            Self::BOTH.into_iter().partition(|mode| mode.unavailable().is_some());
        for mode in out {
            eprintln!("skipped in mode {}: {}", mode.name(), mode.unavailable().unwrap_or_default());
        }
        available
    }
}

/// How a sandbox comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Made for the run.
    Cold,
    /// Made ahead of it, from a zygote or by starting the program, and assigned.
    Warm,
}

impl Way {
    pub const BOTH: [Self; 2] = [Self::Cold, Self::Warm];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }

    /// For `redoma run`.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Cold => &[],
            Self::Warm => &["--warm"],
        }
    }
}

/// The uid of rootless tests, when they are started by root.
pub fn test_uid() -> u32 {
    std::env::var("REDOMA_TEST_UID").ok().and_then(|uid| uid.parse().ok()).unwrap_or(54321)
}

/// Returns when `is_so` says yes; the test fails if it does not within 30 s.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "not after 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder with the runtime that tests use.
pub fn data_dir() -> PathBuf {
    std::env::var_os("REDOMA_TEST_DATA").map_or_else(|| PathBuf::from("/var/tmp/redoma-test"), PathBuf::from)
}

fn built(name: &str) -> PathBuf {
    // This test's own executable is in target/<profile>/deps.
    let here = std::env::current_exe().expect("a test has an executable");
    let profile = here.ancestors().nth(2).expect("it is in target/<profile>/deps");
    let program = profile.join(name);
    assert!(program.exists(), "{} is not built; run `make test`", program.display());
    program
}

/// The program under test.
pub fn redoma_program() -> PathBuf {
    reachable(std::env::var_os("REDOMA_BIN").map_or_else(|| built("redoma"), PathBuf::from))
}

/// Its twin that can leave walls out.
pub fn weakened_program() -> PathBuf {
    built("redoma-weakened")
}

/// The program where the unprivileged test user can reach it too: a checkout may be in a private folder.
fn reachable(program: PathBuf) -> PathBuf {
    let meta = program.metadata().expect("the program exists");
    let stamp =
        std::os::unix::fs::MetadataExt::mtime_nsec(&meta) + std::os::unix::fs::MetadataExt::mtime(&meta);
    let folder = data_dir().join("bin");
    let copy = folder.join(format!("redoma-{}-{stamp}", meta.len()));
    if !copy.exists() && std::fs::create_dir_all(&folder).is_ok() {
        // Tests run at the same time: whole or not at all, and never in the place of one that is in use.
        let new = folder.join(format!(".new-{}", std::process::id()));
        let done = std::fs::copy(&program, &new).and_then(|_| std::fs::hard_link(&new, &copy));
        let _ = std::fs::remove_file(&new);
        if done.is_err() && !copy.exists() {
            return program;
        }
    }
    copy
}

/// `redoma` with these arguments, in a clean environment.
pub fn redoma<S: AsRef<OsStr>>(mode: Mode, arguments: impl IntoIterator<Item = S>) -> Command {
    command(redoma_program(), mode, arguments)
}

/// Any build of the program.
pub fn command<S: AsRef<OsStr>>(
    program: PathBuf,
    mode: Mode,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null());
    let private = match mode {
        Mode::Root => data_dir().join("state-root"),
        Mode::Rootless => data_dir().join("state-rootless"),
    };
    prepare_state(&private, mode);
    command.env("REDOMA_DATA_DIR", &private).env("PATH", "/usr/bin:/bin").env("HOME", &private);
    if mode == Mode::Rootless && rustix::process::geteuid().is_root() {
        let uid = test_uid();
        command.uid(uid).gid(uid);
    }
    command
}

/// Each mode has a data folder of its own, which shares the one runtime.
fn prepare_state(folder: &std::path::Path, mode: Mode) {
    if folder.join("runtimes").exists() {
        return;
    }
    std::fs::create_dir_all(folder).expect("the test data folder is writable");
    if mode == Mode::Rootless && rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder, Some(test_uid()), Some(test_uid())).expect("root may chown");
    }
    // Another test may have been quicker.
    let _ = std::os::unix::fs::symlink(data_dir().join("runtimes"), folder.join("runtimes"));
}

/// `redoma run --json …` to its end.
pub fn run_json<S: AsRef<OsStr>>(mode: Mode, arguments: impl IntoIterator<Item = S>) -> RunReport {
    let mut command = redoma(mode, ["run", "--json"]);
    command.args(arguments);
    report_of(&mut command)
}

/// Runs the command and reads its report.
pub fn report_of(command: &mut Command) -> RunReport {
    let output = command.output().expect("redoma starts");
    parse_report(&output)
}

pub fn parse_report(output: &Output) -> RunReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "no report ({error}): {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Output of `redoma` as text: exit code, stdout, stderr.
pub fn text_of(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("redoma starts");
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
