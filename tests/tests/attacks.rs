//! The attack suite: every program in `tests/attacks/` tries to break out, as root's sandbox and as a plain user's, of one
//! made for it and of one that waited, and must fail; then tries again with the walls it names left out, and must be
//! noticed.
//!
//! A case is a Python, JavaScript or bash program. Its first comment lines say what it is about:
//!
//! ```text
//! claim: what must hold, in a sentence (docs/threat-model.md names the case)
//! weaken: seccomp,capabilities       the walls without which it succeeds
//! flags: --memory 64MiB --wall 5s    further flags for `redoma run`
//! limit: memory                      the limit that must end it (otherwise it must end by itself)
//! or_limit: memory                   a limit that may end it, depending on the cgroup's version
//! hits: pids                         a limit that must be reported as reached
//! twice: yes                         runs in two sandboxes at the same time, as roles `a` and `b`
//! modes: root                        only in this mode, and why
//! ```
//!
//! It is called with the arguments `CANARY_FOLDER KEY ROLE`, prints a line with `ESCAPED` and how if it gets anywhere, and
//! ends with `CONTAINED`. It is not trusted with the verdict: the suite also looks for the canary's token in everything
//! that came out, at the canary itself, and at what is left on the host.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use redoma_model::{Ending, LimitName, RunReport};
use redoma_tests::canary::Canary;
use redoma_tests::cases::{Case, cases, holds_token};
use redoma_tests::{Mode, Way, command, host, parse_report, redoma_program, weakened_program};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for case in cases() {
        for way in Way::BOTH {
            for mode in Mode::BOTH {
                let is_meant = case
                    .field("modes")
                    .is_none_or(|modes| modes.split_whitespace().next() == Some(mode.name()));
                if !is_meant {
                    continue;
                }
                let (name, case) = (format!("{}::{}::{}", mode.name(), way.name(), case.name), case.clone());
                let trial = Trial::test(name, move || contained(&case, mode, way));
                trials.push(trial.with_ignored_flag(mode.unavailable().is_some()));
            }
            // What a waiting sandbox leaves running ends with its nursery, whatever else fails: a wall behind this one, which
            // can't be left out.
            if way == Way::Warm && case.field("weaken").is_some_and(|walls| walls.contains("kill")) {
                continue;
            }
            let (name, case) = (format!("weakened::{}::{}", way.name(), case.name), case.clone());
            let trial = Trial::test(name, move || noticed(&case, way));
            trials.push(trial.with_ignored_flag(Mode::Root.unavailable().is_some()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// One finished sandbox, and what could be seen of it from outside.
struct Finished {
    report: RunReport,
    supervisor: u32,
    out: tempfile::TempDir,
}

/// Runs the case's sandboxes, at the same time if there are two.
fn attack(
    case: &Case,
    program: &Path,
    mode: Mode,
    way: Way,
    canary: &Canary,
    weaken: Option<&str>,
) -> Vec<Finished> {
    let key = format!("key{}", std::process::id());
    let started: Vec<_> = case
        .roles()
        .iter()
        .map(|role| {
            let out = tempfile::Builder::new()
                .prefix("redoma-out-")
                .tempdir_in("/var/tmp")
                .expect("/var/tmp is writable");
            let mut command = run_command(case, program, mode, way, out.path());
            command.arg(canary.path()).arg(&key).arg(role);
            // Secrets that a host has lying around: in the environment, and in a descriptor that somebody left open.
            command.env("SECRET_FROM_HOST", canary.token());
            command.env("REDOMA_CANARY", canary.path());
            if let Some(walls) = weaken {
                command.env("REDOMA_WEAKEN", walls);
            }
            leave_descriptor_open(&mut command, &canary.path().join("secret.txt"));
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("redoma starts");
            (child, out)
        })
        .collect();
    started
        .into_iter()
        .map(|(child, out)| {
            let supervisor = child.id();
            let output = child.wait_with_output().expect("redoma ends");
            let _ = std::fs::remove_dir_all(out.path().with_extension("main"));
            Finished { report: parse_report(&output), supervisor, out }
        })
        .collect()
}

fn run_command(case: &Case, program: &Path, mode: Mode, way: Way, out: &Path) -> Command {
    let mut command = command(program.to_owned(), mode, ["run", "--json"]);
    let flags = case.field("flags").unwrap_or_default();
    if !flags.contains("--wall") {
        // Only what hangs takes so long, also under emulation.
        command.args(["--wall", "120s"]);
    }
    command.args(way.flags()).args(flags.split_whitespace());
    command.arg("--out").arg(out);
    if way == Way::Warm && case.path.extension().is_some_and(|end| end == "js") {
        // Only a script of this name gets a Node that was started ahead.
        let copy = out.with_extension("main");
        std::fs::create_dir_all(&copy).expect("beside the results");
        std::fs::copy(&case.path, copy.join("main.js")).expect("a case can be copied");
        command.arg(copy.join("main.js"));
    } else {
        command.arg(&case.path);
    }
    if mode == Mode::Rootless && rustix::process::geteuid().is_root() {
        let uid = redoma_tests::test_uid();
        std::os::unix::fs::chown(out, Some(uid), Some(uid)).expect("root may chown");
    }
    command
}

/// Descriptor 42 of the child: the canary's secret, open for reading and writing, without close-on-exec.
fn leave_descriptor_open(command: &mut Command, secret: &Path) {
    // Through a shell's redirection: this crate has no unsafe code to do it between fork and exec.
    let program = command.get_program().to_owned();
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let environment: Vec<_> =
        command.get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    let script = format!("exec 42<>'{}'; exec \"$0\" \"$@\"", secret.display());
    let mode_is_rootless = environment
        .iter()
        .any(|(key, value)| key == "REDOMA_DATA_DIR" && Path::new(value).ends_with("state-rootless"));
    let mut wrapped = redoma_tests::command(
        PathBuf::from("/usr/bin/bash"),
        if mode_is_rootless { Mode::Rootless } else { Mode::Root },
        ["-c", &script],
    );
    wrapped.arg(program).args(arguments).envs(environment);
    *command = wrapped;
}

/// How to look for what a run by a supervisor has left behind.
type Look = fn(u32, Option<u32>, &Path) -> Vec<String>;

/// Everything that went wrong, in words. Empty if the sandbox held.
fn breaches(case: &Case, canary: &Canary, finished: &[Finished], mode: Mode, look: Look) -> Vec<String> {
    let mut breaches: Vec<String> =
        canary.changes().map(|change| format!("the canary was changed: {change}")).into_iter().collect();
    for one in finished {
        let report = &one.report;
        let said = format!("{}\n{}", report.stdout.text, report.stderr.text);
        for line in said.lines().filter(|line| line.contains("ESCAPED")) {
            breaches.push(line.to_owned());
        }
        if said.contains(canary.token()) || holds_token(one.out.path(), canary.token()) {
            breaches.push("the canary's token came out".to_owned());
        }
        match case.field("limit") {
            Some(limit) => {
                let ended_by = report.limit.map(LimitName::name);
                if ended_by != Some(limit) {
                    breaches.push(format!("ended by {ended_by:?} instead of the {limit} limit: {said}"));
                }
            }
            // Version 2 counts as memory what version 1 counts apart.
            None if case.field("or_limit") == report.limit.map(LimitName::name) && report.limit.is_some() => {
            }
            None if report.ending != Ending::Exited || !report.stdout.text.contains("CONTAINED") => {
                breaches.push(format!("did not end by itself: {:?} {said}", report.ending));
            }
            None => {}
        }
        if let Some(hit) = case.field("hits")
            && !report.limits_hit.iter().any(|limit| limit.name() == hit)
        {
            breaches.push(format!("the {hit} limit was not reached: {:?}", report.limits_hit));
        }
        let uid = (mode == Mode::Root).then_some(report.isolation.host_uid);
        let state = redoma_tests::data_dir().join(format!("state-{}", mode.name()));
        breaches.extend(look(one.supervisor, uid, &state));
    }
    breaches
}

fn contained(case: &Case, mode: Mode, way: Way) -> Result<(), Failed> {
    let canary = Canary::plant();
    let finished = attack(case, &redoma_program(), mode, way, &canary, None);
    let breaches = breaches(case, &canary, &finished, mode, host::left_for_good);
    if breaches.is_empty() { Ok(()) } else { Err(breaches.join("\n").into()) }
}

fn noticed(case: &Case, way: Way) -> Result<(), Failed> {
    let canary = Canary::plant();
    let walls = case.field("weaken").unwrap_or_default();
    let finished = attack(case, &weakened_program(), Mode::Root, way, &canary, Some(walls));
    // Without that wall everything is left at once or not at all, until the next janitor sweeps.
    let look = if walls.contains("kill") { host::leftovers } else { host::left_for_good };
    let breaches = breaches(case, &canary, &finished, Mode::Root, look);
    for one in &finished {
        clean_up(one);
    }
    if breaches.is_empty() {
        return Err(format!(
            "without {walls} the attack was not noticed: {}",
            finished[0].report.stdout.text
        )
        .into());
    }
    Ok(())
}

/// Ends what a weakened sandbox left running, by the uid that only it has.
fn clean_up(finished: &Finished) {
    let uid = finished.report.isolation.host_uid;
    for process in host::processes_of_uid(uid) {
        let pid = process
            .split(' ')
            .next()
            .and_then(|pid| pid.parse().ok())
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    for folder in host::cgroups_of(finished.supervisor) {
        let _ = std::fs::remove_dir(folder);
    }
}
