//! Objects of Linux that a program holds many of: listings of folders, and record locks.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

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
