//! Too much of everything: a user who does their worst beside one who works, a host without room, processes that are
//! killed. None of it is another's trouble, and none of it stays.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redoma_tests::http::{Answer, Request};
use redoma_tests::server::{ADMIN, Home, Server};
use redoma_tests::{Mode, host, redoma_program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn program(language: &str, code: &str) -> serde_json::Value {
    json!({ "lang": language, "code": code })
}

/// A program of this user's, over LibreChat's route.
fn exec(server: &Server, user: &str, language: &str, code: &str) -> Request {
    server.post("/v1/exec").key(ADMIN).header("User-Id", user).json(&program(language, code))
}

/// Whether it printed exactly this.
fn said(answer: &Answer, text: &str) -> bool {
    answer.status == 200 && answer.json()["stdout"] == text
}

/// A process and those that come from it: number, name, command line.
fn tree(root: u32) -> Vec<(u32, String, String)> {
    let mut known = BTreeSet::from([root]);
    let mut found = Vec::new();
    let mut all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    loop {
        let (children, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, parent)| known.contains(parent));
        if children.is_empty() {
            return found;
        }
        for (pid, _) in children {
            known.insert(pid);
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push((pid, name.trim().to_owned(), String::from_utf8_lossy(&line).into_owned()));
        }
        all = others;
    }
}

fn kill(pid: u32) {
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL);
}

const BOMBS: [(&str, &str); 15] = [
    ("py", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    ("bash", "f() { f | f & }; f; sleep 20"),
    ("py", "held = []\nwhile True: held.append(bytearray(16 << 20))"),
    ("py", "import os\nfor _ in range(5): os.fork()\nwhile True: pass"),
    ("bash", "cd /tmp; i=0; while :; do head -c 32M /dev/zero > f$((i++)); done"),
    ("py", "import sys\nwhile True: sys.stdout.write('x' * 65536)"),
    (
        "py",
        "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(99,)).start()\n    except RuntimeError: pass",
    ),
    ("bash", "sleep 29"),
    ("bash", "while :; do /bin/true; done"),
    ("py", "n = 0\nwhile True:\n    n += 1\n    try: open(f'f{n}', 'w').close()\n    except OSError: n = 0"),
    // Linux memory that no cgroup counts.
    (
        "py",
        "import fcntl\nfile = open('locks', 'w+')\nn = 0\nwhile True:\n    n += 2\n    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, n)\n    except OSError: n = 0",
    ),
    (
        "py",
        "import os\nfor n in range(2000): open(f'f{n}', 'w').close()\nheld = []\nwhile True:\n    try:\n        held.append(os.open('.', os.O_RDONLY)); os.listdir(held[-1])\n    except OSError: held = []; os.closerange(3, 4096)",
    ),
    (
        "py",
        "import socket\nheld = []\nwhile True:\n    try: held.append(socket.create_server(('127.0.0.1', 0), backlog=4096))\n    except OSError: held = []",
    ),
    // What the server has to read, store and list.
    ("py", "for n in range(9000): open(f'{n:0200}.txt', 'w').close()"),
    ("py", "import os\nfor n in range(4000): os.symlink('x' * 4000, f'{n:0240}')"),
];

/// Takes what users share beside programs: bodies and messages that don't end, connections that say nothing.
fn hold_what_is_shared(server: &Server, is_over: &AtomicBool) {
    let large = vec![b' '; 7 << 20];
    let padded = [program("bash", "sleep 20").to_string().as_bytes(), &large].concat();
    let padded = server
        .post("/v1/exec")
        .key(ADMIN)
        .header("User-Id", "hostile")
        .body("application/json", padded)
        .bytes();
    let unfinished = &padded[..padded.len() - 1];
    while !is_over.load(Ordering::Relaxed) {
        let mut held = Vec::new();
        for number in 0..40 {
            let Ok(mut stream) = TcpStream::connect(server.address) else { continue };
            let _ = stream.set_write_timeout(Some(Duration::from_secs(2)));
            // A refusal closes the connection in the middle of this.
            let _ = match number {
                0..3 => stream.write_all(&padded),
                3..6 => stream.write_all(unfinished),
                _ => Ok(()),
            };
            held.push(stream);
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Slow, since limits take their time: bombs go on for as long as the victim needs for its work. It works for 15 s beside the
/// hostile user, and then for 15 s more while the host has sixteen other things to do.
#[test]
fn a_hostile_neighbour_fails_none_of_anothers_requests() {
    let home = Home::new(Mode::available()[0]);
    let server = home.serve();
    server.wait_until_ready();
    let session =
        server.post("/api/v1/sessions").key(ADMIN).header("User-Id", "victim").json(&json!({})).send();
    let session = session.json()["id"].as_str().unwrap().to_owned();
    let cell = server
        .post(&format!("/api/v1/sessions/{session}/executions"))
        .key(ADMIN)
        .header("User-Id", "victim")
        .json(&json!({ "language": "py", "code": "x = globals().get('x', 0) + 1; print(x)" }));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..4 * BOMBS.len() {
            let (language, code) = BOMBS[number % BOMBS.len()];
            let bomb = exec(&server, "hostile", language, code);
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Ended with the server at the latest.
                    if bomb.try_send().is_ok_and(|answer| answer.status != 200) {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
        for number in 0..8 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let opened = server
                    .post("/api/v1/sessions")
                    .key(ADMIN)
                    .header("User-Id", "hostile")
                    .json(&json!({}))
                    .try_send();
                let Ok(opened) = opened else { return };
                let path = format!("/api/v1/sessions/{}/executions", opened.json()["id"].as_str().unwrap());
                let (language, code) = BOMBS[number % 4];
                let body = json!({ "language": language, "code": code });
                let bomb = server.post(&path).key(ADMIN).header("User-Id", "hostile").json(&body);
                while !is_over.load(Ordering::Relaxed) {
                    let _ = bomb.try_send();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| hold_what_is_shared(&server, &is_over));
        }
        let mut count = 0;
        let mut work_for = |seconds| {
            let end = Instant::now() + Duration::from_secs(seconds);
            let enough = count + 10;
            while Instant::now() < end || count < enough {
                count += 1;
                let answer = exec(&server, "victim", "py", &format!("print({count})")).send();
                assert!(said(&answer, &format!("{count}\n")), "{} {}", answer.status, answer.text());
                let answer = exec(&server, "victim", "bash", "echo $((6 * 7))").send();
                assert!(said(&answer, "42\n"), "{} {}", answer.status, answer.text());
                let answer = cell.send();
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(answer.json()["stdout"]["text"], format!("{count}\n"), "{}", answer.text());
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work_for(15);
            for _ in 0..16 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            work_for(15);
        }));
        is_over.store(true, Ordering::Relaxed);
        // What the hostile user still has under way ends with the server, not at its limits.
        if let Err(failed) = result {
            kill(server.pid());
            std::panic::resume_unwind(failed);
        }
        assert!(said(&exec(&server, "victim", "py", "print('still here')").send(), "still here\n"));
        assert_eq!(server.get("/readyz").send().status, 200);
        kill(server.pid());
    });
}

/// Linux then prefers each program of another user as soon as it wakes up.
#[test]
fn a_user_who_takes_all_processors_gets_what_others_leave_over() {
    for mode in Mode::available() {
        let home = Home::new(mode);
        home.configure("");
        let server = home.serve();
        server.wait_until_ready();
        let is_behind = |folder: &PathBuf| {
            std::fs::read_to_string(folder.join("cpu.idle")).is_ok_and(|text| text.trim() == "1")
        };
        let behind = || host::cgroups_of(server.pid()).into_iter().filter(is_behind).count();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let spin = "import os\nfor _ in range(4): os.fork()\nwhile True: pass";
            let body = json!({ "lang": "py", "code": spin, "timeout": 4000 });
            let hog = server.post("/v1/exec").key(ADMIN).header("User-Id", "hog").json(&body);
            let is_over = &is_over;
            for _ in 0..3 {
                let hog = hog.clone();
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = hog.try_send();
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut has_seen = false;
            // With seven active users an even share is so small that the hog exceeds it on a busy machine, too.
            for number in (0..6).cycle() {
                let answer = exec(&server, &format!("light{number}"), "py", "print(1)").send();
                has_seen = said(&answer, "1\n") && behind() > 0;
                if has_seen || Instant::now() >= deadline {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(has_seen, "the hog's sandboxes have the same share as others");
        });
        eventually("the hog's sandboxes are gone", || behind() == 0);
    }
}

#[test]
fn what_makes_sandboxes_can_be_killed_under_load() {
    for mode in Mode::available() {
        let home = Home::new(mode);
        let server = home.serve();
        server.wait_until_ready();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let load = exec(&server, &format!("user-{number}"), "py", "print(1)");
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = load.try_send();
                    }
                });
            }
            let is_zygote = |(_, _, line): &&(u32, String, String)| line.contains("zygote.py");
            for _ in 0..2 {
                for (pid, ..) in tree(server.pid()).iter().filter(is_zygote) {
                    kill(*pid);
                }
                std::thread::sleep(Duration::from_millis(300));
                // The nursery's own first process, and with it everything in it.
                let nursery = tree(server.pid()).into_iter().find(|(_, name, _)| name == "redoma-init");
                if let Some((pid, ..)) = nursery {
                    kill(pid);
                }
                eventually("programs run again", || {
                    said(&exec(&server, "single", "py", "print('again')").send(), "again\n")
                });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for number in 0..20 {
            let answer = exec(&server, "single", "py", &format!("print({number})")).send();
            assert!(said(&answer, &format!("{number}\n")), "{} {}", answer.status, answer.text());
        }
    }
}

/// A control group for a server, with so much memory. Version 1, which tests may make as root.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(bytes: u64) -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/memory/redoma-overload-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A server in a control group of this much memory, where this machine has such groups.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn serve_within(bytes: u64) -> Option<(MemoryGroup, Home, Server)> {
    let Some(group) = MemoryGroup::new(bytes).filter(|_| Mode::available().contains(&Mode::Root)) else {
        eprintln!("skipped: needs root and control groups of version 1");
        return None;
    };
    let home = Home::new(Mode::Root);
    home.configure("[profiles.default]\npreload = []\n[engine]\npool_floor = 1\n");
    let script = home.path().join("in-group.sh");
    let text = format!(
        "#!/bin/sh\necho $$ > {}/cgroup.procs\nexec {} \"$@\"\n",
        group.0.display(),
        redoma_program().display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = home.serve_program(script, |command| command);
    server.wait_until_ready();
    Some((group, home, server))
}

#[test]
fn without_memory_nothing_is_started_until_there_is_some_again() {
    let Some((_group, _home, mut server)) = serve_within(640 << 20) else { return };
    assert!(said(&exec(&server, "victim", "py", "print(1)").send(), "1\n"));
    std::thread::scope(|scope| {
        let hog = exec(
            &server,
            "hog",
            "py",
            "held = b'x' * (460 << 20); import time; time.sleep(4); print('held')",
        );
        let hog = scope.spawn(move || hog.send());
        let mut refused = None;
        eventually("programs are refused", || {
            let answer = exec(&server, "victim", "py", "print(1)").send();
            let is_refused = answer.status == 503;
            refused = Some(answer).filter(|_| is_refused);
            is_refused
        });
        let refused = refused.unwrap();
        assert_eq!(
            (refused.json()["error"].as_str(), refused.header("retry-after")),
            (Some("overloaded"), Some("5"))
        );
        assert_eq!(server.get("/healthz").send().status, 200);
        let hog = hog.join().unwrap();
        assert!(said(&hog, "held\n"), "what runs goes on: {}", hog.text());
    });
    eventually("programs run again", || said(&exec(&server, "victim", "py", "print(2)").send(), "2\n"));
    server.kill();
}

/// When memory runs out, sessions of the user who holds the most of it end first, however recently they were used.
#[test]
fn sessions_full_of_memory_do_not_end_those_of_others() {
    let Some((_group, _home, mut server)) = serve_within(800 << 20) else { return };
    let open = |user: &str| {
        let opened =
            server.post("/api/v1/sessions").key(ADMIN).header("User-Id", user).json(&json!({})).send();
        format!("/api/v1/sessions/{}/executions", opened.json()["id"].as_str().unwrap())
    };
    let cell = |user: &str, path: &str, code: &str| {
        let body = json!({ "language": "py", "code": code });
        server.post(path).key(ADMIN).header("User-Id", user).json(&body).send()
    };
    let victim = open("victim");
    assert_eq!(cell("victim", &victim, "x = 42").status, 200);
    let hostile: Vec<_> = (0..3).map(|_| open("hostile")).collect();
    // Until one of the hostile user's own sessions has lost its variables twice.
    let mut ended = 0;
    eventually("sessions end for want of memory", || {
        for path in &hostile {
            let answer = cell("hostile", path, "held = b'x' * (150 << 20)");
            ended += usize::from(answer.status == 200 && answer.json()["cell"]["restarted"] == true);
        }
        ended >= 2
    });
    // Without memory, cells are refused for a moment.
    let mut answer = None;
    eventually("the victim's cell is run", || {
        let last = cell("victim", &victim, "print(x)");
        let is_run = last.status == 200;
        answer = Some(last);
        is_run
    });
    let answer = answer.unwrap().json();
    assert_eq!((&answer["stdout"]["text"], &answer["cell"]["restarted"]), (&json!("42\n"), &json!(false)));
    server.kill();
}

/// Files that programs get are in memory of the server's, which no limit of a sandbox bounds.
#[test]
fn files_of_one_user_leave_memory_for_others() {
    let Some((_group, _home, mut server)) = serve_within(800 << 20) else { return };
    let session_with = |user: &str, bytes: usize| {
        let opened =
            server.post("/api/v1/sessions").key(ADMIN).header("User-Id", user).json(&json!({})).send();
        let path = format!("/api/v1/sessions/{}", opened.json()["id"].as_str().unwrap());
        let content = vec![b'x'; bytes];
        let upload = server.post(&format!("{path}/files")).key(ADMIN).header("User-Id", user);
        let answer = upload.form(&[], &[("input.txt", &content)]).send();
        assert_eq!(answer.status, 201, "{}", answer.text());
        path
    };
    let program = |user: &str, path: &str, code: &str| {
        let body = json!({ "language": "py", "code": code, "stateful": false });
        server.post(&format!("{path}/executions")).key(ADMIN).header("User-Id", user).json(&body)
    };
    let (hostile, victim) = (session_with("hostile", 100 << 20), session_with("victim", 1 << 20));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let held = program("hostile", &hostile, "import time; time.sleep(100)");
        let is_over = &is_over;
        let end = Instant::now() + Duration::from_mins(1);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                // Refused for a moment if the host has no memory, and ended with the server at the latest.
                let _ = held.try_send();
            }
        });
        let mut refused = None;
        eventually("a second program with as many bytes is refused", || {
            let answer = program("hostile", &hostile, "print(1)").send();
            let is_refused = answer.status == 429;
            refused = Some(answer).filter(|_| is_refused);
            is_refused
        });
        let refused = refused.unwrap();
        assert!(refused.text().contains("as one user may"), "{}", refused.text());
        let answer = program("victim", &victim, "print(len(open('input.txt').read()))").send();
        assert_eq!(answer.json()["stdout"]["text"], "1048576\n", "{}", answer.text());
        is_over.store(true, Ordering::Relaxed);
        kill(server.pid());
    });
    server.kill();
}

#[test]
fn a_server_killed_among_bombs_starts_again_cleanly() {
    let home = Home::new(Mode::available()[0]);
    for _ in 0..2 {
        let mut server = home.serve();
        server.wait_until_ready();
        let old: BTreeSet<u32> = tree(server.pid()).into_iter().map(|(pid, ..)| pid).collect();
        std::thread::scope(|scope| {
            for (language, code) in BOMBS {
                let bomb = exec(&server, "hostile", language, code);
                scope.spawn(move || bomb.try_send());
            }
            std::thread::sleep(Duration::from_millis(1500));
            kill(server.pid());
        });
        server.kill();
        let server = home.serve();
        server.wait_until_ready();
        assert!(said(&exec(&server, "victim", "py", "print('back')").send(), "back\n"));
        let is_left = |pid: &&u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("zygote.py")
        };
        eventually("nothing of the old one is left", || old.iter().find(is_left).is_none());
    }
}

#[test]
fn systemd_is_told_when_it_is_ready_that_it_lives_and_that_it_ends() {
    let home = Home::new(Mode::available()[0]);
    let place = home.path().join("notify.socket");
    let socket = UnixDatagram::bind(&place).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777)).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let hear = || {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut server =
        home.serve_with(|command| command.env("NOTIFY_SOCKET", &place).env("WATCHDOG_USEC", "600000"));
    let mut heard = vec![hear()];
    while !heard.iter().any(|text| text.contains("STATUS=ready")) {
        heard.push(hear());
    }
    assert!(heard[0].starts_with("READY=1\nSTATUS=serving on") || heard[0] == "WATCHDOG=1", "{heard:?}");
    assert_eq!(hear(), "WATCHDOG=1");
    assert_eq!(hear(), "WATCHDOG=1");
    // One that stands still says nothing.
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(900))).unwrap();
    let mut bytes = [0; 64];
    let mut silent = false;
    for _ in 0..3 {
        silent = socket.recv(&mut bytes).is_err();
    }
    assert!(silent, "it was stopped, and still says that it lives");
    kill_process(pid, Signal::CONT).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    assert_eq!(hear(), "WATCHDOG=1");
    server.stop();
    let mut last = hear();
    while last == "WATCHDOG=1" {
        last = hear();
    }
    assert!(last.starts_with("STOPPING=1"), "{last}");
}
