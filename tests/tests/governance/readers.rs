//! Who reads programs before they run: processes that have nothing, and that nobody misses.

use std::path::Path;

use redoma_tests::server::{ADMIN, Server};
use redoma_tests::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{run, start};

const ON: &str = "[profiles.default.policy]\nmode = \"on\"\n";

/// The readers of this server.
fn readers(server: &Server) -> Vec<Pid> {
    let read = |path: &Path, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    let parent = format!("PPid:\t{}", server.pid());
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|path| read(path, "comm").trim() == "redoma-reader")
        .filter(|path| read(path, "status").lines().any(|line| line == parent))
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw))
        .collect()
}

fn status(pid: Pid, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn readers_have_given_up_everything() {
    let (_home, mut server) = start(ON);
    run(&server, ADMIN, "py", "print(1)");
    let readers = readers(&server);
    assert!(!readers.is_empty());
    for reader in &readers {
        assert_eq!((status(*reader, "Seccomp"), status(*reader, "NoNewPrivs")), ("2".into(), "1".into()));
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status(*reader, set), "0000000000000000", "{set}");
        }
        if rustix::process::geteuid().is_root() {
            for ids in ["Uid", "Gid"] {
                let all: Vec<_> = status(*reader, ids).split(' ').map(ToOwned::to_owned).collect();
                assert!(all.iter().all(|id| id != "0"), "{ids}: {all:?}");
            }
            let folder = format!("/proc/{}/fd", reader.as_raw_nonzero());
            let mut open: Vec<_> =
                std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            open.sort();
            assert_eq!(open, ["0", "1", "2"]);
            let environment = std::fs::read(format!("/proc/{}/environ", reader.as_raw_nonzero())).unwrap();
            assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
        }
        let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", reader.as_raw_nonzero()));
        assert_eq!(score.unwrap().trim(), "1000");
    }
    // They go with the server, however it goes.
    let alive = |pid: &Pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists();
    server.kill();
    wait_until("readers outlive their server", || !readers.iter().any(alive));
}

#[test]
fn a_reader_that_dies_or_hangs_costs_its_text_and_nothing_else() {
    let (_home, server) = start(ON);
    run(&server, ADMIN, "py", "print(1)");
    for round in 0..5 {
        for reader in readers(&server) {
            let _ = kill_process(reader, Signal::KILL);
        }
        let ran = run(&server, ADMIN, "py", &format!("print({round})"));
        assert_eq!(
            (&ran["stdout"]["text"], ran.get("verdict")),
            (&json!(format!("{round}\n")), None),
            "{ran}"
        );
        let denied = run(&server, ADMIN, "bash", "rm -rf /");
        assert_eq!(denied["ending"], "denied", "{denied}");
    }
    // One that never answers: what it was given could not be read, which is told, and the next has another reader.
    let hung = readers(&server);
    assert!(!hung.is_empty());
    for reader in &hung {
        kill_process(*reader, Signal::STOP).unwrap();
    }
    let ran = run(&server, ADMIN, "py", "print(7)");
    assert_eq!(
        (&ran["stdout"]["text"], &ran["verdict"]["decision"]),
        (&json!("7\n"), &json!("flag")),
        "{ran}"
    );
    assert_eq!(ran["verdict"]["findings"][0]["class"], "opaque", "{ran}");
    for reader in hung.iter().skip(1) {
        let _ = kill_process(*reader, Signal::CONT);
    }
    let ran = run(&server, ADMIN, "py", "print(8)");
    assert_eq!((&ran["stdout"]["text"], ran.get("verdict")), (&json!("8\n"), None), "{ran}");
}
