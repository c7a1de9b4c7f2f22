//! Nothing is left: after hundreds of runs, many of them killed, and many with `redoma` itself killed in the middle.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use redoma_tests::{Mode, data_dir, host, redoma};

const RUNS: u64 = 500;
const AT_ONCE: usize = 4;

/// How one of the runs ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    ByItself,
    ByItsLimit,
    /// `redoma` gets SIGKILL after so many milliseconds.
    SupervisorKilled(u64),
}

/// 350 that end by themselves, 100 that reach their time limit, 50 whose supervisor is killed at some moment of the run.
fn end_of(run: u64) -> End {
    match run % 10 {
        3 | 7 => End::ByItsLimit,
        // Spread over the whole life of a run, its first milliseconds included.
        5 => End::SupervisorKilled((run / 10 * 7) % 90),
        _ => End::ByItself,
    }
}

fn start(mode: Mode, end: End, input: &Path) -> Child {
    // Daemons, children that hold stdout, and files, so that there is something to leave behind.
    let quick = "(setsid sleep 60 &) ; sleep 60 & echo made > made; mkfifo pipe";
    let slow = "(setsid sleep 60 &) ; sleep 60 & while :; do :; done";
    let mut command = redoma(mode, ["run", "-q", "--lang", "bash", "--in"]);
    command.arg(input);
    match end {
        End::ByItself => command.args(["-c", quick]),
        End::ByItsLimit => command.args(["--wall", "40ms", "-c", slow]),
        End::SupervisorKilled(_) => command.args(["--wall", "60s", "-c", slow]),
    };
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn finish(mut child: Child, end: End) -> u32 {
    let supervisor = child.id();
    if let End::SupervisorKilled(after) = end {
        std::thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    match end {
        End::ByItself => assert_eq!(status.code(), Some(0)),
        End::ByItsLimit => assert_eq!(status.code(), Some(124)),
        End::SupervisorKilled(_) => assert_eq!(status.code(), None),
    }
    supervisor
}

fn runs_leave_nothing(mode: Mode) {
    if mode.unavailable().is_some() {
        return;
    }
    let input = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    std::fs::set_permissions(input.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let mounts_before = host::mounts();
    let descriptors_before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let supervisors: BTreeSet<u32> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE as u64)
            .map(|worker| {
                let input = input.path();
                scope.spawn(move || {
                    (worker..RUNS)
                        .step_by(AT_ONCE)
                        .map(|run| finish(start(mode, end_of(run), input), end_of(run)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let state = data_dir().join(format!("state-{}", mode.name()));
    let left = || -> Vec<String> {
        let mut left: Vec<_> = host::cgroups()
            .into_iter()
            .filter(|(maker, _)| supervisors.contains(maker))
            .map(|(_, path)| format!("cgroup {}", path.display()))
            .collect();
        for supervisor in &supervisors {
            left.extend(
                host::run_folders_of(&state, *supervisor).iter().map(|path| path.display().to_string()),
            );
        }
        left.extend(host::processes_in_groups_of_any(&supervisors));
        left
    };
    // Those whose supervisor was killed are cleaned up by its janitor, a moment later.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(left(), Vec::<String>::new());
    let new_mounts: Vec<_> =
        host::mounts().into_iter().filter(|mount| !mounts_before.contains(mount)).collect();
    assert!(new_mounts.iter().all(|mount| !mount.contains("redoma")), "{new_mounts:?}");
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), descriptors_before);
}

#[test]
fn five_hundred_runs_by_root_leave_nothing() {
    runs_leave_nothing(Mode::Root);
}

#[test]
fn five_hundred_runs_by_a_plain_user_leave_nothing() {
    runs_leave_nothing(Mode::Rootless);
}

/// If the janitor is killed together with its supervisor, one of the next runs finds and removes what they left.
#[test]
fn the_next_runs_sweep_what_a_killed_janitor_left() {
    for mode in Mode::available() {
        let input = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        std::fs::set_permissions(input.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let mut child = start(mode, End::SupervisorKilled(0), input.path());
        let supervisor = child.id();
        let deadline = Instant::now() + Duration::from_secs(10);
        let janitor = loop {
            if let Some(janitor) = host::child_named(supervisor, "redoma-janitor")
                && !host::cgroups_of(supervisor).is_empty()
            {
                break janitor;
            }
            assert!(Instant::now() < deadline, "no janitor");
            std::thread::sleep(Duration::from_millis(5));
        };
        let janitor = rustix::process::Pid::from_raw(i32::try_from(janitor).unwrap()).unwrap();
        rustix::process::kill_process(janitor, rustix::process::Signal::KILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!host::cgroups_of(supervisor).is_empty(), "there is nothing to sweep");
        let state = data_dir().join(format!("state-{}", mode.name()));
        let mut runs = 0;
        while !host::leftovers(supervisor, None, &state).is_empty() {
            runs += 1;
            assert!(runs <= 200, "still there: {:?}", host::leftovers(supervisor, None, &state));
            finish(start(mode, End::ByItself, input.path()), End::ByItself);
        }
        assert!(runs > 0);
    }
}

/// Whoever reads slowly keeps `redoma` waiting, and nothing else.
#[test]
fn nothing_of_a_run_is_left_while_its_output_waits() {
    for mode in Mode::available() {
        for format in [&[][..], &["--json"][..]] {
            let code = "import time; time.sleep(0.5); print('x' * 3_000_000)";
            let mut command = redoma(mode, ["run", "--output", "4m", "-c", code]);
            let mut child = command.args(format).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            let wait_until = |is_there: bool| {
                while host::cgroups_of(child.id()).is_empty() == is_there {
                    assert!(Instant::now() < deadline, "{mode:?} {format:?}: {is_there}");
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
            wait_until(true);
            wait_until(false);
            assert_eq!(child.try_wait().unwrap(), None, "it has written more than a pipe holds");
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success() && output.stdout.len() > 3_000_000, "{mode:?} {format:?}");
        }
    }
}

/// In a container all processes end with the first one: what a run made is gone before it answers.
#[test]
fn in_a_pid_namespace_of_its_own_nothing_is_left_either() {
    if Mode::Root.unavailable().is_some() {
        return;
    }
    let input = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let state = tempfile::tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::symlink(data_dir().join("runtimes"), state.path().join("runtimes")).unwrap();
    let before = host::cgroups();
    for _ in 0..5 {
        let status = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(redoma_tests::redoma_program())
            .args(["run", "-q", "--lang", "bash", "-c", "true", "--data-dir"])
            .arg(state.path())
            .arg("--in")
            .arg(input.path())
            .status()
            .unwrap();
        assert!(status.success());
    }
    // There is no such folder at all, or nothing in it.
    assert_eq!(std::fs::read_dir(state.path().join("run")).map_or(0, Iterator::count), 0);
    // In there it has the number 1, which nobody out here has who makes groups.
    let left: Vec<_> =
        host::cgroups().into_iter().filter(|group| group.0 == 1 && !before.contains(group)).collect();
    assert!(left.is_empty(), "{left:?}");
}
