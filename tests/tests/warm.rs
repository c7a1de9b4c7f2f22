//! Sandboxes that wait, in an engine that lives: as fresh as those made on the spot, and nothing that goes wrong with those
//! who make them costs a request.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redoma_tests::engine::Engine;
use redoma_tests::{Mode, Way, data_dir, host, redoma, run_json};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Waits for something that happens in the background.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A configuration that the unprivileged test user can read too.
fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("redoma-").suffix(".toml").tempfile_in("/var/tmp").unwrap();
    std::fs::write(file.path(), text).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), open).unwrap();
    file
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// The engine's zygotes: interpreters in the nursery's own PID namespace, one below the host's; their copies are in others.
fn zygotes(engine: &mut Engine) -> Vec<u32> {
    let is_zygote = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("zygote.py") && numbers.split_whitespace().count() == 2
    };
    engine.processes().into_iter().filter(is_zygote).collect()
}

#[test]
fn siblings_share_nothing_random() {
    let code = "\
import os, random, secrets, ssl, tempfile, uuid
import numpy
print(random.random(), random.getrandbits(64))
print(numpy.random.rand(), numpy.random.randint(1 << 60))
print(numpy.random.default_rng().random())
print(os.urandom(8).hex(), secrets.token_hex(8))
print(ssl.RAND_bytes(16).hex())
print(uuid.uuid4())
print(tempfile.mktemp())
";
    for mode in Mode::available() {
        let config = config("[profiles.default]\npreload = [[\"ssl\", \"numpy\"]]\n");
        let mut engine = Engine::start_with(mode, |command| command.arg("--config").arg(config.path()));
        let mut seen = BTreeSet::new();
        for _ in 0..12 {
            for line in engine.output("py", code).lines() {
                for word in line.split_whitespace() {
                    assert!(seen.insert(word.to_owned()), "{word} was seen in two sandboxes");
                }
            }
        }
        let (hits, misses) = engine.pool("numpy");
        assert_eq!(hits + misses, 12, "these were to be copies of one zygote");
    }
}

#[test]
fn a_run_finds_nothing_of_the_one_before() {
    let leave = "\
import os, pathlib
for folder in ['/mnt/data', '/tmp', '/home/sandbox', '/dev/shm']:
    pathlib.Path(folder, 'left').write_text('x')
os.environ['LEFT'] = 'x'
import builtins, json; builtins.left = json.left = 'x'
";
    let look = "\
import builtins, json, os, pathlib
print([f for f in ['/mnt/data', '/tmp', '/home/sandbox', '/dev/shm'] if pathlib.Path(f, 'left').exists()])
print('LEFT' in os.environ, hasattr(builtins, 'left'), hasattr(json, 'left'), sorted(os.listdir('/proc/self/fd')))
print(sorted(os.listdir('.')), sorted(os.listdir('/tmp')), [p for p in os.listdir('/proc') if p.isdigit()])
";
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let before = engine.output("py", look);
        assert!(
            before.starts_with("[]\nFalse False False ['0', '1', '2', '3']\n['main.py'] [] ['2']"),
            "{before}"
        );
        for _ in 0..5 {
            engine.output("py", leave);
            assert_eq!(engine.output("py", look), before);
        }
    }
}

#[test]
fn what_a_program_leaves_running_ends_with_its_run() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        for (language, code) in [
            ("bash", "(setsid sleep 600 &) ; sleep 600 & echo started"),
            (
                "py",
                "import subprocess, os\nsubprocess.Popen(['setsid', 'sleep', '600'])\nif os.fork() == 0:\n    import time; time.sleep(600)\nprint('started')",
            ),
        ] {
            let marker = "sleep\x00600";
            assert_eq!(engine.output(language, code).trim(), "started");
            eventually("the daemons are gone", || {
                let pids = engine.processes();
                !pids.iter().any(|pid| {
                    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&line).starts_with(marker)
                })
            });
        }
    }
}

#[test]
fn a_program_that_only_says_it_leaves_stands_still() {
    // What the zygote's copies do at their end, done by hostile code, which would like to go on: with a timer's signal, and
    // with a second process or thread that is still there. Two seconds later: on a busy host the program needs time to leave.
    let code = "\
import ctypes, os, signal, sys, threading, time
how = HOW
signal.signal(signal.SIGALRM, lambda *_: open('after', 'w').write('went on'))
signal.setitimer(signal.ITIMER_REAL, 2, 0.05)
if how == 'thread':
    threading.Thread(target=lambda: (time.sleep(2), open('after', 'w').write('went on')), daemon=True).start()
if how == 'process' and os.fork() == 0:
    time.sleep(2); open('after', 'w').write('went on'); os._exit(0)
print('leaving', flush=True)
ctypes.CDLL(None).syscall(231, 0x5eda0000 | 7)
open('after', 'w').write('came back')
";
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        for how in ["alone", "thread", "process"] {
            let answer = engine.run("py", &code.replace("HOW", &format!("{how:?}")));
            assert_eq!(answer["exit_code"], 7, "{how}: {answer}");
            assert_eq!(answer["stdout"], "leaving\n", "{how}: {answer}");
            assert_eq!(answer["files"], json!([]), "{how}: it went on after its end");
        }
    }
}

#[test]
fn killed_and_hanging_zygotes_cost_no_request() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        for how in [Signal::KILL, Signal::STOP, Signal::SEGV] {
            let victims = zygotes(&mut engine);
            assert!(victims.len() >= 3, "{victims:?}");
            for victim in &victims {
                signal(*victim, how);
            }
            // More than wait in the pool.
            for number in 0..8 {
                assert_eq!(
                    engine.output("py", &format!("print({number})")),
                    format!("{number}\n"),
                    "{how:?}"
                );
            }
            assert_eq!(
                engine.output("py", "import pandas; print(pandas.DataFrame().empty)"),
                "True\n",
                "{how:?}"
            );
            for victim in &victims {
                signal(*victim, Signal::KILL);
            }
            let is_new = |zygote: &u32| !victims.contains(zygote);
            eventually("there are zygotes again", || {
                zygotes(&mut engine).iter().filter(|zygote| is_new(zygote)).count() >= 5
            });
            eventually("they are of use", || {
                let before = engine.pool("lean");
                engine.output("py", "print(1)");
                engine.pool("lean").0 > before.0
            });
        }
    }
}

#[test]
fn zygotes_see_nothing_of_the_runs() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let zygotes = zygotes(&mut engine);
        assert!(zygotes.len() >= 3, "{zygotes:?}");
        for zygote in zygotes {
            let mounts = std::fs::read_to_string(format!("/proc/{zygote}/mountinfo")).unwrap();
            assert!(mounts.contains("/opt/python"), "{mounts}");
            assert!(!mounts.contains("inbox"), "a zygote has the inputs of all runs: {mounts}");
            let status = std::fs::read_to_string(format!("/proc/{zygote}/status")).unwrap();
            let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
            // To give ids, and nothing else.
            assert_eq!(rights, "00000000000000c0", "{status}");
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
            let limits = std::fs::read_to_string(format!("/proc/{zygote}/limits")).unwrap();
            let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
            assert!(core.split_whitespace().any(|word| word == "1"), "{core}");
        }
    }
}

#[test]
fn an_answer_that_comes_late_is_nobody_elses() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let folder = tempfile::Builder::new().prefix("redoma-in-").tempdir_in("/var/tmp").unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let keeper = engine.processes().into_iter().find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("inside\0nursery")
        });
        let keeper = keeper.unwrap();
        signal(keeper, Signal::STOP);
        let count = 6;
        let mut expected = std::collections::BTreeMap::new();
        for number in 0..count {
            let input = folder.path().join(format!("in-{number}"));
            std::fs::create_dir(&input).unwrap();
            std::fs::set_permissions(&input, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            let input = input.join("token");
            std::fs::write(&input, format!("token-{number}")).unwrap();
            let request = json!({ "op": "run", "lang": "py", "code": "print(open('token').read())", "inputs": [input] });
            expected.insert(engine.send(request), format!("token-{number}\n"));
        }
        // Longer than anybody waits for the keeper.
        std::thread::sleep(Duration::from_millis(3200));
        signal(keeper, Signal::CONT);
        for _ in 0..count {
            let answer = engine.answer();
            let own = &expected[&answer["id"].as_u64().unwrap()];
            // Some are refused, since the keeper is given up. None sees another's file.
            assert!(answer["ok"] == false || answer["stdout"] == *own, "{own:?}: {answer}");
        }
        eventually("programs run again", || engine.run("py", "print(1)")["exit_code"] == 0);
    }
}

#[test]
fn what_node_starts_is_ordinary() {
    let code = "\
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { fork } = require('child_process');
if (process.argv[2] === 'child') { process.send(process.execArgv.length); process.exit(0); }
if (!isMainThread) { parentPort.postMessage(42); } else {
  console.log(require.main === module, module.parent, __filename, process.argv.length, process.execArgv.length);
  console.log(require('fs').readdirSync('.'), require('fs').readdirSync(process.env.HOME));
  new Worker(__filename).on('message', (n) => {
    console.log('worker', n);
    fork(__filename, ['child']).on('message', (n) => console.log('child', n));
  });
}
";
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let warm = engine.output("js", code);
        let cold = run_json(mode, ["--lang", "js", "-c", code]).stdout.text;
        assert_eq!(warm, cold);
    }
}

#[test]
fn a_lost_nursery_is_replaced() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        for _ in 0..2 {
            let stats = engine.ask(json!({ "op": "stats" }));
            let pids = stats["pids"].as_array().unwrap().clone();
            let init = pids.iter().filter_map(serde_json::Value::as_u64).find(|pid| {
                let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                comm.trim() == "redoma-init"
            });
            signal(u32::try_from(init.unwrap()).unwrap(), Signal::KILL);
            eventually("programs run again", || engine.run("py", "print(1)")["exit_code"] == 0);
        }
    }
}

#[test]
fn a_zygote_is_replaced_after_so_many_sandboxes() {
    for mode in Mode::available() {
        let text = "[engine]\nzygote_sandboxes = 4\n[profiles.default]\npreload = [[\"nosuchmodule\"]]\n";
        let config = config(text);
        let mut engine = Engine::start_with(mode, |command| command.arg("--config").arg(config.path()));
        let left_out = engine.ask(json!({ "op": "stats" }))["left_out"].to_string();
        assert!(left_out.contains("nosuchmodule") && left_out.contains("ModuleNotFoundError"), "{left_out}");
        let first = zygotes(&mut engine);
        for _ in 0..12 {
            engine.output("py", "print(1)");
        }
        eventually("another one is in a first zygote's place", || {
            let now = zygotes(&mut engine);
            first.iter().any(|zygote| !now.contains(zygote))
                && now.iter().any(|zygote| !first.contains(zygote))
        });
        assert_eq!(engine.output("py", "print(1)"), "1\n");
    }
}

#[test]
fn a_runtime_that_is_replaced_is_noticed() {
    // As `redoma setup` replaces one: a new folder takes the old one's name.
    let folder = tempfile::Builder::new().prefix("redoma-data-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (base, real) = (folder.path().join("runtimes/base"), data_dir().join("runtimes/base"));
    let make = || {
        std::fs::create_dir_all(&base).unwrap();
        std::fs::copy(real.join("manifest.toml"), base.join("manifest.toml")).unwrap();
        for part in ["etc", "python"] {
            std::os::unix::fs::symlink(real.join(part), base.join(part)).unwrap();
        }
    };
    make();
    let mode = Mode::available()[0];
    if mode == Mode::Rootless && rustix::process::geteuid().is_root() {
        let uid = redoma_tests::test_uid();
        std::os::unix::fs::chown(folder.path(), Some(uid), Some(uid)).unwrap();
    }
    let mut engine = Engine::start_with(mode, |command| command.env("REDOMA_DATA_DIR", folder.path()));
    let first = zygotes(&mut engine);
    std::fs::rename(&base, folder.path().join("old")).unwrap();
    make();
    eventually("every zygote is a new one", || {
        let now = zygotes(&mut engine);
        now.len() >= 3 && now.iter().all(|zygote| !first.contains(zygote))
    });
    eventually("programs run in it", || engine.run("py", "print(1)")["stdout"] == "1\n");
}

#[test]
fn arguments_reach_a_waiting_sandbox_or_are_refused_clearly() {
    let code = "import sys; print(len(sys.argv[1]))";
    for mode in Mode::available() {
        for (length, expected) in [(20_000, (0, "20000\n")), (60_000, (125, ""))] {
            // Each of these takes six bytes in JSON.
            let argument = "\x01".repeat(length);
            let mut command = redoma(mode, ["run", "--warm", "-c", code, "--"]);
            let (code, stdout, stderr) = redoma_tests::text_of(command.arg(argument));
            assert_eq!((code, stdout.as_str()), expected, "{length}: {stderr}");
            assert!(code == 0 || stderr.contains("pass them in a file"), "{stderr}");
        }
        let script = "console.log(process.argv[2].length)";
        let mut command = redoma(mode, ["run", "--warm", "--lang", "js", "-c", script, "--"]);
        let (code, stdout, stderr) = redoma_tests::text_of(command.arg("\x01".repeat(20_000)));
        assert_eq!((code, stdout.as_str()), (0, "20000\n"), "{stderr}");
    }
}

#[test]
fn many_at_once_all_succeed() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let count = 80;
        let languages = ["py", "py", "py", "bash"];
        for number in 0..count {
            let language = languages[number % languages.len()];
            let code = if language == "py" { format!("print({number})") } else { format!("echo {number}") };
            engine.send(json!({ "op": "run", "lang": language, "code": code }));
        }
        let mut seen = BTreeSet::new();
        for _ in 0..count {
            let answer = engine.answer();
            assert_eq!(answer["exit_code"], 0, "{answer}");
            seen.insert(answer["stdout"].as_str().unwrap().trim().parse::<usize>().unwrap());
        }
        assert_eq!(seen, (0..count).collect());
    }
}

#[test]
fn a_run_can_be_cancelled_at_any_moment() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        for after in [0, 1, 3, 10, 50, 200] {
            let start = Instant::now();
            let more = json!({ "cancel_after_ms": after });
            let answer = engine.run_with("py", "while True: pass", &more);
            // Before its turn it is told so; later it is ended.
            assert!(answer["ending"] == "cancelled" || answer["ok"] == false, "{answer}");
            assert!(start.elapsed() < Duration::from_secs(5), "{after} ms");
        }
        assert_eq!(engine.output("py", "print(1)"), "1\n");
    }
}

#[test]
fn inputs_and_other_limits_reach_a_waiting_sandbox() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        let folder = tempfile::Builder::new().prefix("redoma-in-").tempdir_in("/var/tmp").unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let input = folder.path().join("in.csv");
        std::fs::write(&input, "a,b\n").unwrap();
        for (language, code) in [
            (
                "py",
                "print(open('in.csv').read().strip()); open('in.csv', 'a').write('c'); open('new', 'w').write('n')",
            ),
            (
                "js",
                "const fs = require('fs'); console.log(fs.readFileSync('in.csv', 'utf8').trim()); fs.appendFileSync('in.csv', 'c'); fs.writeFileSync('new', 'n')",
            ),
            ("bash", "cat in.csv; echo c >> in.csv; echo n > new"),
        ] {
            let answer = engine.run_with(language, code, &json!({ "inputs": [input] }));
            assert_eq!(answer["stdout"], "a,b\n", "{language}: {answer}");
            let mut names: Vec<_> = answer["files"]
                .as_array()
                .unwrap()
                .iter()
                .map(|file| file["name"].as_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, ["in.csv", "new"], "{language}");
            assert_eq!(
                std::fs::read_to_string(&input).unwrap(),
                "a,b\n",
                "{language}: the original was changed"
            );
        }
        let bomb = "x = bytearray(400 << 20); print('had it')";
        assert_eq!(engine.output("py", bomb), "had it\n");
        let answer = engine.run_with("py", bomb, &json!({ "limits": { "memory": "64MiB" } }));
        assert_eq!(answer["limit"], "memory", "{answer}");
        let answer = engine.run_with("py", "while True: pass", &json!({ "limits": { "wall": "300ms" } }));
        assert_eq!(answer["limit"], "wall", "{answer}");
        let filler = "f = open('big', 'wb')\ntry:\n    f.write(bytes(16 << 20)); f.flush()\nexcept OSError as error:\n    print(error.strerror)";
        let answer = engine.run_with("py", filler, &json!({ "limits": { "disk": "4MiB" } }));
        let said = answer["stdout"].as_str().unwrap();
        assert!(
            answer["limit"] == "disk" || said.contains("No space") || said.contains("too large"),
            "{answer}"
        );
        assert_eq!(engine.output("py", filler), "");
        // Longer than fits into one message.
        let long = format!("x = '{}'\nprint(len(x))", "a".repeat(1 << 20));
        assert_eq!(engine.output("py", &long), format!("{}\n", 1 << 20));
    }
}

/// Files for inputs, by their paths in the workspace.
fn inputs(folder: &tempfile::TempDir, files: &[(&str, &str)]) -> serde_json::Value {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let mut named = json!({});
    for (number, (name, content)) in files.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, content).unwrap();
        named[*name] = path.to_str().into();
    }
    named
}

#[test]
fn modules_among_the_inputs_go_before_those_that_are_loaded() {
    let folder = tempfile::Builder::new().prefix("redoma-in-").tempdir_in("/var/tmp").unwrap();
    let files = [
        ("statistics.py", "whose = 'mine'"),
        ("helpers.py", "import numpy\ndef total(): return int(numpy.array([1, 2]).sum())"),
        ("mypkg/__init__.py", "from . import part"),
        ("mypkg/part.py", "name = __name__"),
        ("pandas/__init__.py", "whose = 'mine'"),
        // What a bare interpreter does not take from here either.
        ("os.py", "raise SystemExit('os')"),
        ("itertools.py", "raise SystemExit('itertools')"),
        ("json/table.csv", "no package"),
    ];
    let code = "\
import statistics, helpers, mypkg, pandas, os, itertools, json, numpy
print(statistics.whose, helpers.total(), mypkg.part.name, pandas.whose, os.getcwd(), json.loads('1'), numpy.__name__)
";
    for mode in Mode::available() {
        let named = inputs(&folder, &files);
        let mut engine = Engine::start(mode);
        let before = engine.pool("exec, open");
        let answer = engine.run_with("py", code, &json!({ "named_inputs": named }));
        assert_eq!(answer["stdout"], "mine 3 mypkg.part mine /mnt/data 1 numpy\n", "{answer}");
        assert_eq!(engine.pool("exec, open"), before, "it was to run in a copy of a zygote");
        // A script can be in its own way, as everywhere.
        let answer = engine.run_with("py", "import random\nprint(__name__)", &json!({ "name": "random.py" }));
        assert_eq!(answer["stdout"], "random\n__main__\n", "{answer}");
    }
}

#[test]
fn inputs_have_folders_and_what_is_deleted_of_them_is_told() {
    let folder = tempfile::Builder::new().prefix("redoma-in-").tempdir_in("/var/tmp").unwrap();
    let names = ["a.txt", "größe/ü ß.csv", "skills/pptx/a.py", "skills/pptx/b.py", "skills/c.py", "d", "e"];
    for mode in Mode::available() {
        let request_inputs = inputs(&folder, &names.map(|name| (name, name)));
        let mut engine = Engine::start(mode);
        for (code, deleted) in [
            ("cat a.txt 'größe/ü ß.csv' skills/pptx/b.py", &[][..]),
            ("echo x >> a.txt; touch skills/new; mkdir skills/pptx/more; chmod 000 skills", &[]),
            ("rm a.txt; mv d e", &["a.txt", "d"]),
            ("rm -rf skills", &["skills/c.py", "skills/pptx/a.py", "skills/pptx/b.py"]),
            (
                "rm -rf skills; mkdir -p skills/pptx; echo 1 > skills/pptx/a.py",
                &["skills/c.py", "skills/pptx/b.py"],
            ),
            ("mv skills s2", &["skills/c.py", "skills/pptx/a.py", "skills/pptx/b.py"]),
            ("rm a.txt; mkdir a.txt; rm d; ln -s /etc/passwd d", &["a.txt", "d"]),
            ("rm -r größe; echo x > größe; rm e; echo again > e", &["größe/ü ß.csv"]),
            ("rm d; chmod 000 skills/pptx skills /mnt/data", &["d"]),
            ("rm -rf skills; ln -s / skills", &["skills/c.py", "skills/pptx/a.py", "skills/pptx/b.py"]),
        ] {
            let answer = engine.run_with("bash", code, &json!({ "named_inputs": request_inputs }));
            assert_eq!(answer["exit_code"], 0, "{code}: {answer}");
            assert_eq!(answer["deleted_files"], json!(deleted), "{code}: {answer}");
        }
        let answer = engine.run_with("bash", "", &json!({ "named_inputs": { "../up": "/etc/passwd" } }));
        assert!(answer["error"].as_str().unwrap().contains("`.` or `..`"), "{answer}");
    }
}

#[test]
fn a_script_may_have_another_name_in_every_language() {
    let mut engine = Engine::start(Mode::available()[0]);
    let folder = tempfile::Builder::new().prefix("redoma-in-").tempdir_in("/var/tmp").unwrap();
    for (language, code, own) in [
        ("py", "print(open('main.py').read(), __file__[10:])", "main.py"),
        ("js", "console.log(require('fs').readFileSync('main.js', 'utf8'), __filename.slice(10))", "main.js"),
        (
            "ts",
            "const n: string = 'main.ts'; console.log(require('fs').readFileSync(n, 'utf8'), 'x.ts')",
            "main.ts",
        ),
        ("bash", "echo \"$(cat main.sh) $0\"", "main.sh"),
    ] {
        let name = format!("x.{}", own.rsplit_once('.').unwrap().1);
        let more = json!({ "name": name, "named_inputs": inputs(&folder, &[(own, "input")]) });
        let answer = engine.run_with(language, code, &more);
        assert_eq!(answer["stdout"], format!("input {name}\n"), "{language}: {answer}");
        assert_eq!(answer["files"], json!([]), "{language}");
    }
}

#[test]
fn the_value_of_the_last_line_is_told_and_changes_nothing_else() {
    let mut engine = Engine::start(Mode::available()[0]);
    for (code, value) in [
        ("6 * 7", Some("42")),
        ("print(1)", None),
        ("x = {'a': 'ü'}\nprint(x)\nx", Some("{'a': 'ü'}")),
        ("x = 1", None),
        ("None", None),
        ("", None),
        ("'doc'", Some("'doc'")),
        ("x = 5\n(y := x)", Some("5")),
        ("class A:\n    def __repr__(self): raise SystemExit(3)\nA()", None),
        ("class A:\n    def __repr__(self): return '\\ud800'\nA()", Some("\\ud800")),
        ("import sys, os\nsys.stdout.close()\nos.close(1)\n1", Some("1")),
        // Its own files have the numbers that they have anywhere.
        ("import os\nos.open('/dev/null', os.O_RDONLY)", Some("3")),
    ] {
        let answer = engine.run_with("py", code, &json!({ "last_value": true }));
        assert_eq!((&answer["exit_code"], answer["value"].as_str()), (&json!(0), value), "{code}: {answer}");
        assert_eq!(engine.run("py", code)["value"], json!(null));
    }
    for long in ["'ü' * 10_000_000", "bytes(10_000_000)", "[1] * 10_000_000"] {
        let answer = engine.run_with("py", long, &json!({ "last_value": true }));
        let length = answer["value"].as_str().unwrap().len();
        assert!((60_000..=65_536).contains(&length), "{long}: {length}");
    }
    assert_eq!(engine.run_with("bash", "echo 1", &json!({ "last_value": true }))["stdout"], "1\n");
    // What it prints, how it ends and which lines it names are the same.
    for (what, code) in ENDINGS {
        let [without, with] = [false, true].map(|wanted| {
            let answer = engine.run_with("py", code, &json!({ "last_value": wanted }));
            ["exit_code", "ending", "stdout", "stderr", "files"].map(|key| answer[key].clone())
        });
        assert_eq!(with, without, "{what}");
    }
}

#[test]
fn shown_plots_are_left_as_pictures() {
    let code = "\
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.figure(); plt.bar(['a'], [2])
open('plot-2.png', 'w').write('mine')
plt.show()
print(plt.get_fignums())
figure, axes = plt.subplots(); plt.savefig('saved.png'); plt.show(block=False)
from matplotlib.animation import FuncAnimation
figure, axes = plt.subplots()
animation = FuncAnimation(figure, lambda frame: axes.plot([frame]), frames=3)
figure.show()
";
    let names = ["plot-1.png", "plot-2.png", "plot-3.png", "plot-4.png", "plot-5.png", "saved.png"];
    let in_bash = format!("python3 - <<'END'\n{code}END\n");
    for (language, code) in [("py", code), ("bash", &in_bash)] {
        for way in Way::BOTH {
            let arguments = way.flags().iter().copied().chain(["--lang", language, "-c", code]);
            let report = run_json(Mode::available()[0], arguments);
            assert_eq!(
                (report.stdout.text.as_str(), report.stderr.text.as_str()),
                ("[]\n", ""),
                "{language}"
            );
            let mut files: Vec<_> = report.files.iter().map(|file| file.name.as_str()).collect();
            files.sort_unstable();
            assert_eq!(files, names, "{language}, {}", way.name());
        }
    }
    let full = "\
import matplotlib.pyplot as plt
plt.plot([1, 2])
try:
    with open('big', 'wb') as file:
        while True: file.write(bytes(1 << 16))
except OSError: pass
plt.show()
print('went on')
";
    let report = run_json(Mode::available()[0], ["--disk", "8MiB", "-c", full]);
    assert_eq!(report.stdout.text, "went on\n");
    assert_eq!(report.stderr.text, "plot-1.png could not be kept: No space left on device\n");
}

#[test]
fn nothing_is_left_of_a_killed_engine() {
    for mode in Mode::available() {
        let mut engine = Engine::start(mode);
        engine.send(json!({ "op": "run", "lang": "bash", "code": "(setsid sleep 600 &); sleep 600" }));
        engine.send(json!({ "op": "run", "lang": "py", "code": "import time; time.sleep(600)" }));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!host::cgroups_of(engine.pid()).is_empty(), "there is something to be left");
        let killed = engine.kill();
        eventually("everything is gone", || {
            host::cgroups_of(killed).is_empty()
                && host::processes_in_groups_of(killed).is_empty()
                && host::run_folders_of(&data_dir(), killed).is_empty()
        });
    }
}

/// Programs whose end must look the same in a copy of a zygote as in an interpreter of their own.
const ENDINGS: [(&str, &str); 22] = [
    ("a value", "print(6 * 7)"),
    ("an exit code", "import sys; sys.exit(3)"),
    ("a message as exit code", "import sys; sys.exit('so long')"),
    ("an exception", "def f():\n    raise ValueError('no')\nf()"),
    (
        "a chained exception",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
    ),
    ("a syntax error", "print(1\nx = 2"),
    ("an indentation error", "if True:\nprint(1)"),
    (
        "a hook for exceptions",
        "import sys\nsys.excepthook = lambda kind, value, trace: print('hook', kind.__name__, value)\nraise ValueError('no')",
    ),
    ("exit handlers", "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')"),
    (
        "a thread that is waited for",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('done'))).start()",
    ),
    (
        "a file that nobody closes",
        "f = open('out.txt', 'w'); f.write('kept')\nimport atexit\natexit.register(lambda: print(open('out.txt').read() or 'empty so far'))",
    ),
    ("a finalizer", "class A:\n    def __del__(self): print('gone')\na = A()"),
    (
        "a file in a module of its own",
        "open('own.py', 'w').write('f = open(\"out.txt\", \"w\"); f.write(\"kept\")')\nimport own",
    ),
    ("a strange name among the globals", "globals()[1] = 2; print('x')"),
    (
        "another thing in the module's place",
        "import sys\nclass A: __slots__ = ()\nsys.modules[__name__] = A(); print('x')",
    ),
    ("no modules at all", "import sys; print('x'); sys.modules.clear()"),
    (
        "a dead proxy",
        "import weakref, builtins\nclass A: pass\na = A(); builtins.p = weakref.proxy(a); print('x')",
    ),
    (
        "an object that lies about its class",
        "class A:\n    @property\n    def __class__(self): raise RuntimeError\nimport builtins; builtins.a = A(); print('x')",
    ),
    ("a missing builtin", "import builtins; print('x'); del builtins.isinstance"),
    ("a large exit code", "import sys; sys.exit(2 ** 70)"),
    ("an end without ceremony", "import os, sys\nprint('x', end='')\nos._exit(9)"),
    ("a signal", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
];

#[test]
fn a_program_ends_in_a_copy_as_it_does_in_an_interpreter_of_its_own() {
    for (what, code) in ENDINGS {
        let [cold, warm] = Way::BOTH.map(|way| {
            let arguments = way.flags().iter().copied().chain(["-c", code]);
            let report = run_json(Mode::Root, arguments);
            let files: Vec<_> = report.files.iter().map(|file| (file.name.clone(), file.size)).collect();
            (report.exit_code, report.signal, report.stdout.text, report.stderr.text, files)
        });
        assert_eq!(warm, cold, "{what}");
    }
}

#[test]
fn a_program_sees_itself_as_it_would_in_an_interpreter_of_its_own() {
    let code = "\
import sys, os, inspect
print(sys.argv, sys.orig_argv[1:], __name__, __file__, __spec__, __package__, __doc__, __builtins__)
print(sys.path, os.getcwd(), sys.executable, sys.prefix, sys.flags)
print(sorted(name for name in globals()))
print(sys.stdout.seekable(), sys.stderr.seekable(), sys.stdin.seekable())
print(sys.stdin.isatty(), sys.stdin.read(), sys.stdout.encoding, sys.stdout.line_buffering, sys.getrecursionlimit())
print(inspect.getsource(sys.modules['__main__'])[:10], sys.modules['__main__'].__dict__ is globals())
print(os.getppid(), os.getsid(0) == os.getpid(), os.umask(0))
import multiprocessing
def double(x): return 2 * x
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))
import subprocess
print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True))
";
    let [cold, warm] = Way::BOTH.map(|way| {
        let mut command = redoma(Mode::Root, ["run"]);
        command.args(way.flags()).args(["-c", code, "--", "one", "--two"]);
        redoma_tests::text_of(&mut command)
    });
    assert_eq!(warm, cold);
}
