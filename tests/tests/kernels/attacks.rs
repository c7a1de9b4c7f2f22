//! The jail's attack suite (`tests/attacks/`, see `tests/tests/attacks.rs`) inside of live sessions: each program is a cell of
//! one, with the same expectations. Its flags are a profile's limits.
//!
//! Here the process that was attacked from is not ended afterwards. So the session has to go on as well: its next cell must
//! find the variables of the one before the attack, or say that they are gone.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use redoma_tests::canary::Canary;
use redoma_tests::cases::{Case, cases, holds_token};
use redoma_tests::wait_until;
use redoma_tests::{Mode, host};
use serde_json::{Value, json};

use crate::session::{Done, Session};
use crate::{World, each};

/// Those that can't do in a kernel what they do in a sandbox of their own, with the reason.
const NOT_IN_KERNELS: &[(&str, &str)] = &[
    (
        "lifecycle::kill_everybody",
        "a cell of bash that kills everybody else kills the process that cells run in, and its checkpoints: see `survive.rs`",
    ),
    ("bombs::cpu_exec_loop", "a cell is no file that bash could execute anew"),
];

/// What some find in a kernel, and may: the case, the line, the reason.
const BY_DESIGN: &[(&str, &str, &str)] = &[
    (
        "bombs::folder_depth",
        "ESCAPED: 1001 folders in 1000",
        "the one more is that of the script, which a cell has none of",
    ),
    (
        "sockets::",
        "ESCAPED: the table unix [",
        "the kernel's own line, without a name: nobody can connect to it",
    ),
    ("", "ESCAPED: /proc/2/cmdline: /opt/python/bin/python3", "the kernel, whose child the cell's bash is"),
    ("", "ESCAPED: descriptor 0 is /dev/null", "a cell has no standard input"),
    ("", "ESCAPED: 5 /dev/null b''", "a cell has no standard input"),
    ("", "ESCAPED: descriptor 199 is /memfd:cell", "where a cell of bash writes down what its variables are"),
    (
        "namespaces::",
        "ESCAPED: may signal [",
        "its own checkpoints: see `survive.rs` for what becomes of that",
    ),
];

fn language(case: &Case) -> &'static str {
    match case.path.extension().and_then(|end| end.to_str()) {
        Some("py") => "py",
        Some("sh") => "bash",
        _ => "js",
    }
}

/// Limits for which `redoma run` has flags.
const FLAGS: &[(&str, &str)] = &[
    ("--memory", "memory"),
    ("--pids", "pids"),
    ("--disk", "disk"),
    ("--cpu-time", "cpu_time"),
    ("--cpus", "cpus"),
    ("--output", "output"),
    ("--nofile", "nofile"),
    ("--files", "files"),
    ("--wall", "wall"),
];

/// As `redoma-engine` has it.
const OWN_PROCESSES: u64 = 20;

fn profile_name(case: &Case) -> String {
    format!("{}-{}", case.name.replace("::", "-").replace('_', "-"), language(case))
}

/// A profile for each case.
fn profiles(cases: &[Case]) -> String {
    let mut text = String::new();
    for case in cases {
        let _ = writeln!(text, "[profiles.{}.limits]", profile_name(case));
        for (flag, key) in FLAGS {
            let Some(value) = case.flag(flag).or((*flag == "--wall").then_some("20s")) else { continue };
            // A kernel may have so many processes more, for its checkpoints; nobody else's are counted apart from them.
            let of_code = value.parse::<u64>().map(|pids| (pids - OWN_PROCESSES).to_string());
            let of_code = of_code.ok().filter(|_| *flag == "--pids");
            let value = of_code.as_deref().unwrap_or(value);
            // Numbers are numbers.
            let is_number = value.parse::<f64>().is_ok();
            let _ = if is_number {
                writeln!(text, "{key} = {value}")
            } else {
                writeln!(text, "{key} = \"{value}\"")
            };
        }
    }
    text
}

/// The program as a cell, with its arguments where it looks for them.
fn cell_of(case: &Case, arguments: &[&str]) -> Value {
    let text = std::fs::read_to_string(&case.path).unwrap();
    let list = json!(arguments).to_string();
    let quoted = || arguments.iter().map(|argument| format!("'{argument}'")).collect::<Vec<_>>().join(" ");
    let code = match language(case) {
        "py" => format!("import sys; sys.argv = ['main.py', *{list}]; __file__ = '/mnt/data/main.py'\n{text}"),
        "bash" => format!("set -- {}\n{text}", quoted()),
        // A program ends when it waits for nothing any more; a cell with its last line.
        _ => format!(
            "process.argv = ['node', 'main.js', ...{list}]; globalThis.__said = false;
const __log = console.log; console.log = (...words) => {{ __said ||= `${{words[0]}}`.includes('CONTAINED'); return __log(...words) }};
{text}
for (let turn = 0; turn < 150 && !__said; turn++) await new Promise(go => setTimeout(go, 100));"
        ),
    };
    json!({ "language": language(case), "code": code })
}

/// Everything that went wrong, in words.
fn breaches(case: &Case, canary: &Canary, done: &Done) -> Vec<String> {
    let mut breaches = Vec::new();
    let said = format!("{}\n{}", done.stdout(), done.stderr());
    let is_by_design = |line: &str| {
        BY_DESIGN.iter().any(|(name, found, _)| case.name.starts_with(name) && line.starts_with(found))
    };
    let escapes = said.lines().filter(|line| line.contains("ESCAPED") && !is_by_design(line));
    breaches.extend(escapes.map(ToOwned::to_owned));
    if done.answer.to_string().contains(canary.token()) {
        breaches.push("the canary's token came out".to_owned());
    }
    let ended_by = done.answer["limit"].as_str();
    match case.field("limit") {
        // Bash and Node are children of the kernel, which goes on without them and says how they ended.
        Some(limit) if language(case) != "py" && done.went_on() && is_told_of(done, limit) => {}
        Some(limit) if ended_by != Some(limit) => {
            breaches.push(format!("ended by {ended_by:?} instead of the {limit} limit: {done}"));
        }
        None if ended_by.is_some() && case.field("or_limit") == ended_by => {}
        None if done.answer["ending"] != "exited" || !done.stdout().contains("CONTAINED") => {
            breaches.push(format!("did not end by itself: {done}"));
        }
        _ => {}
    }
    if let Some(hit) = case.field("hits")
        && !done.answer["limits_hit"].as_array().unwrap().contains(&json!(hit))
    {
        breaches.push(format!("the {hit} limit was not reached: {}", done.answer["limits_hit"]));
    }
    breaches
}

/// Whether the answer says that this limit was reached.
fn is_told_of(done: &Done, limit: &str) -> bool {
    let signal = if limit == "disk" { "SIGXFSZ" } else { "SIGKILL" };
    let is_hit = done.answer["limits_hit"].as_array().is_some_and(|hit| hit.contains(&json!(limit)));
    done.notes().contains(signal) && (is_hit || limit == "disk")
}

fn attack(world: &World, case: &Case, canary: &Canary) {
    let key = format!("key{}{}", std::process::id(), profile_name(case));
    let sessions: Vec<_> = case
        .roles()
        .iter()
        .map(|role| (*role, Session::with_profile(&world.server, &profile_name(case))))
        .collect();
    for (_, session) in &sessions {
        session.cell("kept = 'kept'");
        if let Some(files) = case.field("flags").filter(|flags| flags.contains("--in ")) {
            for path in files.split_whitespace().filter(|word| word.starts_with('/')) {
                session.upload(path.rsplit('/').next().unwrap(), &std::fs::read(path).unwrap());
            }
        }
    }
    let folder = canary.path();
    let folder = folder.to_str().unwrap();
    let finished: Vec<Done> = std::thread::scope(|scope| {
        let running: Vec<_> = sessions
            .iter()
            .map(|(role, session)| {
                let cell = cell_of(case, &[folder, &key, role]);
                scope.spawn(move || session.run(&cell))
            })
            .collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut wrong: Vec<_> = finished.iter().flat_map(|done| breaches(case, canary, done)).collect();
    wrong.extend(canary.changes().map(|change| format!("the canary was changed: {change}")));
    for ((_, session), done) in sessions.iter().zip(&finished) {
        let uid = done.answer["isolation"]["host_uid"].as_u64().unwrap();
        let next = session.cell("print(globals().get('kept'))");
        let is_told = done.is("lost") || next.is("restarted");
        if next.stdout() != "kept\n" && !is_told {
            wrong.push(format!("variables are gone and nobody says so: {next} after {done}"));
        }
        assert_eq!(session.remove(), 204);
        let is_root = Mode::available()[0] == Mode::Root;
        let left = || if is_root { host::processes_of_uid(u32::try_from(uid).unwrap()) } else { Vec::new() };
        wait_until("its processes are gone", || left().is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Attacks of these groups, one after the other.
fn hold(groups: &[&str]) {
    let all = cases();
    for (name, _) in NOT_IN_KERNELS {
        assert!(all.iter().any(|case| case.name == *name), "there is no {name}");
    }
    let mode = Mode::available()[0];
    let cases: Vec<_> = all
        .into_iter()
        .filter(|case| groups.contains(&case.name.split("::").next().unwrap()))
        .filter(|case| !NOT_IN_KERNELS.iter().any(|(name, _)| *name == case.name))
        .filter(|case| {
            case.field("modes").is_none_or(|modes| modes.split_whitespace().next() == Some(mode.name()))
        })
        .collect();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.split("::").next().unwrap()).collect();
    assert_eq!(names.len(), groups.len(), "a group without attacks");
    let canary = Canary::plant();
    let mut world = World::in_mode(mode, &profiles(&cases), "", |command| {
        command.env("SECRET_FROM_HOST", canary.token()).env("REDOMA_CANARY", canary.path())
    });
    each(&cases, |case| case.name.clone(), |case| attack(&world, case, &canary));
    world.assert_sound();
    assert!(!holds_token(&world.home.storage(), canary.token()), "the canary's token is in a stored file");
    assert_eq!(world.server.stop(), Some(0));
    wait_until("nothing is left", || host::leftovers(world.server.pid(), None, world.home.path()).is_empty());
}

#[test]
fn bombs_are_held_inside_of_kernels() {
    hold(&["bombs"]);
}

#[test]
fn files_are_safe_from_kernels() {
    hold(&["files", "leftovers", "secrets"]);
}

#[test]
fn walls_hold_inside_of_kernels() {
    hold(&["namespaces", "privileges", "sockets", "syscalls"]);
}

#[test]
fn what_does_not_want_to_end_is_held_inside_of_kernels() {
    hold(&["lifecycle"]);
}
