//! Sessions whose processes get hardly any CPU. Slow is not dead: no cell that was answered is lost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use redoma_tests::wait_until;
use serde_json::json;

use crate::session::Session;
use crate::{World, each_of};

/// Makes each checkpoint take this much CPU time, and gives the process a name that the host can see.
fn slow_to_copy(name: &str, seconds: f64) -> String {
    format!(
        r"
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b'{name}')
def burn():
    end = time.process_time() + {seconds}
    while time.process_time() < end: pass
os.register_at_fork(before=burn)
x, seen = 0, []
"
    )
}

/// The CPU limit of the control group that a named process is in. Dropping it restores the limit.
struct CpuLimit {
    file: PathBuf,
    before: String,
    starved: &'static str,
}

impl CpuLimit {
    fn of(name: &str) -> Self {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pid = pids
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .find(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
            })
            .unwrap_or_else(|| panic!("no process is called {name}"));
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let file = |controller: &str, file: &str| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (names, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
                let mount = if names.is_empty() { String::new() } else { names.to_owned() };
                let is_it = names.split(',').any(|name| name == controller);
                let file = PathBuf::from("/sys/fs/cgroup").join(mount).join(path).join(file);
                (is_it && file.exists()).then_some(file)
            })
        };
        if let Some(period) = file("cpu", "cpu.cfs_period_us") {
            std::fs::write(period, "1000000").unwrap();
        }
        // Version 1, else version 2.
        let (file, starved) = file("cpu", "cpu.cfs_quota_us")
            .map(|file| (file, "1000"))
            .or_else(|| file("", "cpu.max").map(|file| (file, "1000 1000000")))
            .expect("a control group with a CPU limit");
        let before = std::fs::read_to_string(&file).unwrap();
        // The period is one second from now on: without a limit the sandbox runs as before.
        let before = if starved == "1000" { "-1".to_owned() } else { before };
        Self { file, before, starved }
    }

    /// From now on its processes get a thousandth of one CPU.
    fn starve(&self) {
        std::fs::write(&self.file, self.starved).unwrap();
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.file, &self.before);
    }
}

/// Sends cells while the process can't make the checkpoint of the last one. The first answers come after a minute.
fn cells_are_refused_and_not_undone(world: &World) {
    let session = Session::new(&world.server);
    session.cell(&slow_to_copy("starve-cells", 0.3));
    let limit = CpuLimit::of("starve-cells");
    assert_eq!(session.printed("x += 1; seen.append(x); print(seen)"), "[1]");
    limit.starve();
    let start = Instant::now();
    let next = json!({ "language": "py", "code": "x += 1; seen.append(x); print(seen)" });
    let mut answers = 0;
    while start.elapsed() < Duration::from_secs(59) {
        let answer = session.request(&next).send();
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(answer.json()["code"], "session_slow");
        assert!(answer.header("retry-after").is_some());
        answers += 1;
    }
    assert!(answers > 0);
    drop(limit);
    let done = session.run(&next);
    assert_eq!((done.stdout(), done.notes()), ("[1, 2]\n", String::new()), "{done}");
}

/// Checkpoints and cells that are made a little at a time, each process in its turn. Cells are answered, refused, or ended at
/// their limit; the variables are those of the cells that were answered.
fn answered_cells_are_there(world: &World) {
    let session = Session::new(&world.server);
    session.cell(&slow_to_copy("starve-slowly", 0.01));
    let limit = CpuLimit::of("starve-slowly");
    limit.starve();
    let mut seen = Vec::new();
    let next = json!({ "language": "py", "code": "x += 1; seen.append(x); print(seen)" });
    let start = Instant::now();
    let mut run = |is_starved: bool| {
        let answer = session.request(&next).send();
        assert!(answer.status == 200 || (is_starved && answer.status == 503), "{}", answer.text());
        if answer.status == 200 && answer.json()["exit_code"] == 0 {
            seen.push(seen.len() + 1);
            assert_eq!(answer.json()["stdout"]["text"], format!("{seen:?}\n"), "{}", answer.text());
        }
    };
    while start.elapsed() < Duration::from_secs(50) {
        run(true);
    }
    drop(limit);
    run(false);
    run(false);
}

/// A session that stands still before its checkpoint is made.
fn a_frozen_session_keeps_its_last_cell(world: &World) {
    let session = Session::new(&world.server);
    session.cell(&slow_to_copy("starve-freeze", 0.3));
    let limit = CpuLimit::of("starve-freeze");
    assert_eq!(session.printed("x += 1; seen.append(x); print(seen)"), "[1]");
    limit.starve();
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    drop(limit);
    let done = session.cell("x += 1; seen.append(x); print(seen)");
    assert_eq!((done.stdout(), done.notes()), ("[1, 2]\n", String::new()), "{done}");
}

/// A cell ends its process, and the checkpoint needs long to wake up.
fn a_restore_waits_for_its_checkpoint(world: &World) {
    let session = Session::new(&world.server);
    session.cell(&slow_to_copy("starve-restore", 0.3).replace("os.register_at_fork(before=burn)", ""));
    assert_eq!(session.printed("x += 1; seen.append(x); print(seen)"), "[1]");
    session.cell("def burn_long(): burn(); burn()\nos.register_at_fork(after_in_child=burn_long)");
    let limit = CpuLimit::of("starve-restore");
    limit.starve();
    let killed = std::thread::scope(|scope| {
        let killed = scope.spawn(|| session.cell("os._exit(1)"));
        // Longer than any timeout that once took such a process for dead.
        std::thread::sleep(Duration::from_secs(25));
        drop(limit);
        killed.join().unwrap()
    });
    assert!(killed.is("restored"), "{killed}");
    let done = session.cell("x += 1; seen.append(x); print(seen)");
    assert_eq!((done.stdout(), done.notes()), ("[1, 2]\n", String::new()), "{done}");
}

type Case = (&'static str, fn(&World));

#[test]
fn a_starved_session_loses_no_cell() {
    let world = World::with("", "freeze_after = \"1s\"\n");
    let cases: [Case; 4] = [
        ("cells", cells_are_refused_and_not_undone),
        ("slowly", answered_cells_are_there),
        ("freeze", a_frozen_session_keeps_its_last_cell),
        ("restore", a_restore_waits_for_its_checkpoint),
    ];
    each_of(&cases, cases.len(), |(name, _)| (*name).to_owned(), |(_, check)| check(&world));
    world.assert_sound();
}
