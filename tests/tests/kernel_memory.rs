//! The memory of Linux itself, judged by the host's own counters. A sandbox's control group is charged for what the sandbox
//! takes, hostile code gets no memory that no group counts, and many runs leave no growing caches behind.
//!
//! The counters belong to the whole host. These tests run alone (`.config/nextest.toml`).

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use redoma_tests::engine::Engine;
use redoma_tests::host_memory::Snapshot;
use redoma_tests::{Mode, Way, redoma};

const MIB: i64 = 1 << 20;

/// What the kernel's memory has grown by when the program says that it holds what it could get; also if it was ended first.
fn growth_by(mode: Mode, way: Way, arguments: &[&str], code: &str) -> (String, i64) {
    let before = Snapshot::take();
    let mut command = redoma(mode, ["run"]);
    command.args(way.flags()).args(arguments).args(["--lang", "py", "-c", code]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let grown =
        Snapshot::take().counter("SUnreclaim").cast_signed() - before.counter("SUnreclaim").cast_signed();
    // It waits for this line, if it is still there.
    let _ = child.stdin.take().unwrap().write_all(b"go on\n");
    child.wait().unwrap();
    (said, grown)
}

#[test]
fn listings_of_the_workspace_take_no_memory_of_the_host() {
    let code = "
import os
for number in range(5000):
    open(f'{number:0200}', 'w').close()
held = []
for number in range(60):
    folder = os.open('.', os.O_RDONLY)
    # 250 entries of each are enough to have the whole folder read.
    os.lseek(folder, 0, 0)
    next(os.scandir(folder))
    held.append(folder)
    open(f'another-{number}', 'w').close()
print('holds', len(held), flush=True)
input()";
    for mode in Mode::available() {
        for way in Way::BOTH {
            let (said, grown) = growth_by(mode, way, &["--in", "/etc/os-release", "--files", "20000"], code);
            assert_eq!(said, "holds 60\n", "{mode:?} {way:?}");
            // 5,000 files take 8 MiB of it, which are charged to the sandbox. 60 listings would take 90.
            assert!(grown < 40 * MIB, "{mode:?} {way:?}: {} MiB", grown / MIB);
        }
    }
}

/// Runs to be measured, after as many to fill pools and caches.
const RUNS: u64 = 300;
/// Objects of a cache that a run may leave behind, in hundredths. A run that leaves one file of its control group leaves 100.
/// Measured: 770 to 880 before names were used again and files closed before their folder's removal, −100 to 10 since.
const MAX_LEFT: i64 = 150;

#[test]
fn runs_leave_no_objects_in_the_kernels_caches() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let mut run = |count: u64| {
            for _ in 0..count {
                assert_eq!(engine.output("py", "print(1)"), "1\n");
            }
        };
        run(RUNS);
        let before = Snapshot::take();
        run(RUNS);
        let after = Snapshot::take();
        for cache in ["kernfs_node_cache", "inode_cache"] {
            let objects =
                |snapshot: &Snapshot| i64::try_from(snapshot.cache(cache).objects).unwrap_or(i64::MAX);
            let grown = objects(&after) - objects(&before);
            let allowed = MAX_LEFT * i64::try_from(RUNS).unwrap_or(i64::MAX) / 100;
            assert!(
                grown < allowed,
                "{}: {RUNS} runs left {grown} objects in {cache}, more than {allowed}: {}",
                mode.name(),
                after.since(&before)
            );
        }
    }
}

#[test]
fn record_locks_take_little_memory_of_the_host() {
    // The caches can be read by root alone.
    if Mode::Root.unavailable().is_some() {
        return;
    }
    let code = "
import fcntl, os, struct, time
for number in range(900):
    file = os.open(f'/tmp/{number}', os.O_RDWR | os.O_CREAT)
    for byte in range(300):
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, byte * 2, 1, 0))
end = time.process_time() + 1
while time.process_time() < end: pass
print('holds 270000')";
    for mode in Mode::available() {
        for way in Way::BOTH {
            let before = Snapshot::take().cache("file_lock_cache").objects;
            let mut command = redoma(mode, ["run"]);
            command.args(way.flags()).args(["--lang", "py", "-c", code]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut peak = before;
            while child.try_wait().unwrap().is_none() {
                peak = peak.max(Snapshot::take().cache("file_lock_cache").objects);
            }
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mode:?} {way:?}: it was not ended");
            let grown = peak.saturating_sub(before);
            assert!(grown < 200_000, "{mode:?} {way:?}: {grown} locks at once");
        }
    }
}
