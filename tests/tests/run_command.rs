//! `redoma run` as a user meets it: languages, input and output, files in and out, limits, mistakes.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use redoma_model::{Ending, LimitName};
use redoma_tests::{
    Mode, command, host, parse_report, redoma, redoma_program, run_json, text_of, wait_until,
};

/// A folder that the unprivileged test user can use too.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("redoma-test-").tempdir_in("/var/tmp").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    folder
}

#[test]
fn each_language_runs_and_gets_its_arguments() {
    for mode in Mode::available() {
        for (language, code) in [
            ("py", "import sys; print('hi', sys.argv[1:])"),
            ("js", "console.log('hi', process.argv.slice(2))"),
            ("ts", "const greeting: string = 'hi'; console.log(greeting, process.argv.slice(2))"),
            ("bash", "echo hi \"$@\""),
        ] {
            let report = run_json(mode, ["--lang", language, "-c", code, "--", "--one", "two"]);
            assert_eq!(report.exit_code, Some(0), "{language}: {}", report.stderr.text);
            let said = report.stdout.text.replace(['[', ']', '\'', ','], "").replace("  ", " ");
            assert_eq!(said.trim(), "hi --one two", "{language}");
        }
    }
}

#[test]
fn the_data_stack_is_there_and_a_plot_comes_out() {
    for mode in Mode::available() {
        let folder = folder();
        let script = folder.path().join("plot.py");
        std::fs::write(
            &script,
            "import pandas, numpy, scipy, sklearn, seaborn, plotly, bs4, lxml, sqlalchemy, yaml, openpyxl, docx, pypdf\n\
             import matplotlib.pyplot as plt\n\
             plt.plot([1, 3, 2]); plt.savefig('plot.png')\n\
             print(pandas.DataFrame({'a': [1, 2]}).a.sum())\n",
        )
        .unwrap();
        let out = folder.path().join("out");
        let (code, stdout, stderr) = text_of(
            redoma(mode, ["run", "--wall", "5m", "--cpu-time", "5m", "--out"]).arg(&out).arg(&script),
        );
        assert_eq!((code, stdout.as_str()), (0, "3\n"), "{stderr}");
        let png = std::fs::read(out.join("plot.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG"), "not a picture");
        assert!(stderr.contains("wrote plot.png"), "{stderr}");
        assert!(!stderr.contains("Matplotlib"), "matplotlib complains about its cache: {stderr}");
    }
}

#[test]
fn as_few_open_files_as_can_be_asked_for_are_enough() {
    for mode in Mode::available() {
        let folder = folder();
        let input = folder.path().join("in.txt");
        std::fs::write(&input, "here").unwrap();
        for runtime in [&[][..], &["--runtime", "/"][..]] {
            let mut command = redoma(mode, ["run", "--nofile", "16", "--lang", "bash", "-c", "cat in.txt"]);
            let (code, out, err) = text_of(command.args(runtime).arg("--in").arg(&input));
            assert_eq!((code, out.as_str()), (0, "here"), "{mode:?} {runtime:?}: {err}");
        }
    }
}

#[test]
fn inputs_are_there_and_the_originals_can_not_be_changed() {
    for mode in Mode::available() {
        let folder = folder();
        let (input, out) = (folder.path().join("größe ü.csv"), folder.path().join("out"));
        std::fs::write(&input, "a,b\n1,2\n").unwrap();
        let code = "name = 'größe ü.csv'\nprint(open(name).read())\nopen(name, 'a').write('3,4\\n')\nopen('new', 'w').write('n')";
        let mut command = redoma(mode, ["run", "--in"]);
        command.arg(&input).arg("--out").arg(&out).args(["-c", code]);
        let (code, stdout, stderr) = text_of(&mut command);
        assert_eq!((code, stdout.as_str()), (0, "a,b\n1,2\n\n"), "{stderr}");
        assert_eq!(std::fs::read_to_string(&input).unwrap(), "a,b\n1,2\n");
        assert_eq!(std::fs::read_to_string(out.join("größe ü.csv")).unwrap(), "a,b\n1,2\n3,4\n");
        assert_eq!(std::fs::read_to_string(out.join("new")).unwrap(), "n");
        assert!(!out.join("main.py").exists(), "the program is not a result");
    }
}

#[test]
fn an_input_that_only_its_owner_may_read_can_be_used() {
    for mode in Mode::available() {
        let folder = folder();
        let input = folder.path().join("private.txt");
        std::fs::write(&input, "private").unwrap();
        std::fs::set_permissions(&input, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        if mode == Mode::Rootless {
            let uid = redoma_tests::test_uid();
            std::os::unix::fs::chown(&input, Some(uid), Some(uid)).unwrap_or_default();
        }
        let (_, stdout, stderr) = text_of(redoma(mode, ["run", "--in"]).arg(&input).args([
            "--lang",
            "bash",
            "-c",
            "cat private.txt",
        ]));
        assert_eq!(stdout, "private", "{stderr}");
    }
}

#[test]
fn standard_input_reaches_the_program() {
    for mode in Mode::available() {
        let folder = folder();
        let script = folder.path().join("upper.py");
        std::fs::write(&script, "import sys; print(sys.stdin.read().upper(), end='')").unwrap();
        let mut command = redoma(mode, ["run"]);
        let mut child = command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text = "line\n".repeat(50_000);
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn({
            let text = text.clone();
            move || stdin.write_all(text.as_bytes())
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text.to_uppercase());
    }
}

#[test]
fn a_program_from_standard_input_runs() {
    let mode = Mode::available()[0];
    let mut child = redoma(mode, ["run", "--lang", "bash", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"echo from stdin; exit 3").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"from stdin\n".as_slice()));
}

#[test]
fn output_comes_while_the_program_runs() {
    use std::io::Read;
    let mode = Mode::available()[0];
    let code = "import time\nprint('first')\ntime.sleep(2)\nprint('second')";
    let start = Instant::now();
    let mut child = redoma(mode, ["run", "-c", code]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    assert!(start.elapsed() < Duration::from_millis(1900), "held back for {:?}", start.elapsed());
    child.wait().unwrap();
}

#[test]
fn exit_codes_and_signals_are_the_programs_own() {
    for mode in Mode::available() {
        for code in [0, 1, 42, 125, 255] {
            let (got, ..) = text_of(&mut redoma(mode, ["run", "-c", &format!("raise SystemExit({code})")]));
            assert_eq!(got, code);
        }
        let abort = run_json(mode, ["-c", "import os; os.abort()"]);
        assert_eq!((abort.ending, abort.exit_code), (Ending::Signaled, None));
        assert_eq!(abort.signal.as_deref(), Some("SIGABRT"));
        let (got, ..) = text_of(&mut redoma(mode, ["run", "-q", "-c", "import os; os.abort()"]));
        assert_eq!(got, 134);
    }
}

#[test]
fn one_process_is_enough_for_a_program_of_one() {
    for mode in Mode::available() {
        let report = run_json(mode, ["--pids", "1", "-c", "print(1)"]);
        assert_eq!(
            (report.exit_code, report.stdout.text.as_str()),
            (Some(0), "1\n"),
            "{}",
            report.stderr.text
        );
        assert!(report.usage.pids_peak.is_none_or(|peak| peak.used == 1), "{:?}", report.usage.pids_peak);
        assert!(report.limits_hit.is_empty(), "{:?}", report.limits_hit);
    }
}

#[test]
fn when_memory_ends_the_program_goes_and_init_stays() {
    for mode in Mode::available() {
        let code = "print('ready', flush=True)\nimport time\ntime.sleep(60)";
        let mut child = redoma(mode, ["run", "-c", code]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        let score = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        let init = host::child_named(child.id(), "redoma-init").unwrap();
        let program = host::child_named(init, "python3").unwrap();
        // It writes its own when the program runs already.
        let deadline = Instant::now() + Duration::from_secs(10);
        while score(init) != "0\n" && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!((score(init).as_str(), score(program).as_str()), ("0\n", "1000\n"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_program_may_use_all_processors_that_redoma_may() {
    let processors = std::process::Command::new("nproc").output().unwrap().stdout;
    let processors = String::from_utf8(processors).unwrap();
    let code = "import os; print(len(os.sched_getaffinity(0)))";
    for mode in Mode::available() {
        for _ in 0..5 {
            let (got, out, _) = text_of(&mut redoma(mode, ["run", "-c", code]));
            assert_eq!((got, &out), (0, &processors));
        }
    }
}

#[test]
fn whoever_started_redoma_may_have_ignored_the_ends_of_children() {
    for mode in Mode::available() {
        let program = redoma_program();
        let ignoring = ["--ignore-signal=CHLD", program.to_str().unwrap(), "run", "-c", "print(7)"];
        let (code, out, err) = text_of(&mut command("/usr/bin/env".into(), mode, ignoring));
        assert_eq!((code, out.as_str(), err.as_str()), (0, "7\n", ""));
    }
}

#[test]
fn the_wall_limit_ends_a_run_within_100_ms() {
    for mode in Mode::available() {
        // The best of five: a busy machine may delay any one of them, a wrong limit all.
        let best = (0..5)
            .map(|_| {
                let report =
                    run_json(mode, ["--wall", "700ms", "-c", "import time\nprint('x')\ntime.sleep(60)"]);
                assert_eq!((report.ending, report.limit), (Ending::Limit, Some(LimitName::Wall)));
                assert_eq!(report.stdout.text, "x\n", "what was printed before the end is kept");
                assert!(report.usage.wall_ms.used >= 700, "ended early: {:?}", report.usage.wall_ms);
                report.usage.wall_ms.used
            })
            .min()
            .unwrap();
        assert!(best <= 800, "ended after {best} ms");
    }
}

#[test]
fn the_cpu_limit_counts_all_processes_together() {
    for mode in Mode::available() {
        let code = "import os\nos.fork()\nwhile True: pass";
        let report = run_json(mode, ["--cpu-time", "1s", "--cpus", "2", "-c", code]);
        assert_eq!(report.limit, Some(LimitName::CpuTime), "{report:?}");
        let used = report.usage.cpu_ms.used;
        assert!((1000..1300).contains(&used), "ended after {used} ms of CPU time");
    }
}

#[test]
fn the_memory_limit_is_at_the_limit() {
    for mode in Mode::available() {
        let allocate = |mib: u32| format!("x = bytearray({mib} << 20)\nprint('has it')");
        let fits = run_json(mode, ["--memory", "128MiB", "-c", &allocate(96)]);
        assert_eq!((fits.ending, fits.stdout.text.as_str()), (Ending::Exited, "has it\n"), "{fits:?}");
        let peak = fits.usage.memory_peak_bytes.unwrap();
        assert!(peak.used > 96 << 20 && peak.limit == 128 << 20, "{peak:?}");
        let bursts = run_json(mode, ["--memory", "128MiB", "-c", &allocate(130)]);
        assert_eq!((bursts.ending, bursts.limit), (Ending::Limit, Some(LimitName::Memory)), "{bursts:?}");
    }
}

#[test]
fn the_pids_limit_is_at_the_limit() {
    let code = "import os, time\ncount = 1\ntry:\n  while count < 100:\n    if os.fork() == 0:\n      time.sleep(5); os._exit(0)\n    count += 1\nexcept OSError: pass\nprint(count)";
    for mode in Mode::available() {
        let report = run_json(mode, ["--pids", "17", "-c", code]);
        assert_eq!(report.stdout.text, "17\n", "{}", report.stderr.text);
        assert_eq!(report.limits_hit, [LimitName::Pids]);
        assert_eq!(report.usage.pids_peak.unwrap().limit, 17);
    }
}

#[test]
fn the_disk_limit_is_one_for_all_writable_places() {
    let code = "import os\ntotal = 0\nfor place in ('/mnt/data', '/tmp', '/home/sandbox', '/dev/shm'):\n  f = os.open(place + '/f', os.O_WRONLY | os.O_CREAT)\n  try:\n    for _ in range(24): total += os.write(f, bytes(1 << 18))\n  except OSError as e: print(e.strerror)\nprint(total)";
    for mode in Mode::available() {
        let report = run_json(mode, ["--disk", "16MiB", "-c", code]);
        let total: u64 = report.stdout.text.lines().last().unwrap().parse().unwrap();
        assert!((15 << 20..=16 << 20).contains(&total), "{}", report.stdout.text);
        assert_eq!(report.limits_hit, [LimitName::Disk]);
        assert!(report.usage.disk_bytes.used > 15 << 20);
    }
}

#[test]
fn the_files_limit_is_reported() {
    let code = "try:\n  for i in range(100): open(f'f{i}', 'w')\nexcept OSError as e: print(i, e.strerror)";
    let mode = Mode::available()[0];
    let report = run_json(mode, ["--files", "50", "-c", code]);
    assert_eq!(report.limits_hit, [LimitName::Files], "{}", report.stdout.text);
    let count: u32 = report.stdout.text.split(' ').next().unwrap().parse().unwrap();
    assert!((45..=50).contains(&count), "made {count}");
}

#[test]
fn long_output_keeps_its_head_and_tail_and_says_what_is_missing() {
    let mode = Mode::available()[0];
    let code = "print('start'); print('x' * 3_000_000); print('end')";
    let report = run_json(mode, ["--output", "64KiB", "-c", code]);
    let stdout = &report.stdout;
    assert!(stdout.text.starts_with("start\n") && stdout.text.ends_with("end\n"));
    assert!(stdout.truncated && stdout.text.len() < (64 << 10) + 100, "{}", stdout.text.len());
    assert_eq!((stdout.bytes, report.exit_code), (3_000_011, Some(0)));
    assert_eq!(report.limits_hit, [LimitName::Output]);
}

#[test]
fn bytes_that_are_not_utf8_are_replaced_and_reported() {
    let report = run_json(Mode::available()[0], ["--lang", "bash", "-c", "printf 'a\\xff\\xfeb'"]);
    assert_eq!(report.stdout.text, "a\u{fffd}\u{fffd}b");
    assert!(!report.stdout.valid_utf8 && report.stdout.bytes == 4);
}

#[test]
fn a_typescript_error_shows_the_line_of_the_original() {
    let folder = folder();
    let script = folder.path().join("shop.ts");
    let source = "enum Size { S, M }\ninterface Item {\n  size: Size;\n}\nfunction price(item: Item): number {\n  throw new Error('no price');\n}\nprice({ size: Size.M } as Item);\n";
    std::fs::write(&script, source).unwrap();
    let (code, _, stderr) = text_of(redoma(Mode::available()[0], ["run"]).arg(&script));
    assert_eq!(code, 1);
    assert!(stderr.contains("/mnt/data/shop.ts:6:9"), "{stderr}");
    std::fs::write(&script, "let a: number = 1;\nlet b: = 2;\n").unwrap();
    let (code, _, stderr) = text_of(redoma(Mode::available()[0], ["run"]).arg(&script));
    assert!(code == 1 && stderr.contains("shop.ts:2:8"), "{stderr}");
}

#[test]
fn every_layer_is_reported() {
    for mode in Mode::available() {
        let report = run_json(mode, ["-c", "pass"]);
        assert_eq!(report.isolation.mode, mode.name());
        assert!(report.isolation.missing.is_empty(), "{:?}", report.isolation.missing);
        assert!(report.isolation.layers.len() >= 16, "{:?}", report.isolation.layers);
        assert!(report.usage.memory_peak_bytes.is_some(), "{:?}", report.isolation.layers);
        assert!(report.isolation.cgroup_version.is_some() && report.isolation.landlock_abi.is_some());
    }
}

#[test]
fn limits_hold_while_nobody_reads_the_output() {
    let mode = Mode::available()[0];
    let code = "head -c 500000 /dev/zero; while :; do :; done";
    let arguments = ["run", "--lang", "bash", "--wall", "2s", "-c", code];
    let mut child = redoma(mode, arguments).stdout(Stdio::piped()).spawn().unwrap();
    let supervisor = child.id();
    // Our pipe holds 64 KiB, and nothing is read from it.
    let pipe = child.stdout.as_ref().unwrap();
    wait_until("the pipe is full", || rustix::io::ioctl_fionread(pipe).unwrap() >= 32 << 10);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !host::processes_in_groups_of(supervisor).is_empty() {
        assert!(Instant::now() < deadline, "the sandbox lives on behind a reader that does not read");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.try_wait().unwrap(), None, "it still has output to write");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[test]
fn typescript_runs_in_any_root_file_system_and_writes_nothing_outside_of_it() {
    let folder = folder();
    let (root, outside) = (folder.path().join("image"), folder.path().join("outside"));
    std::fs::create_dir_all(root.join("usr/bin")).unwrap();
    // Any program that needs no libraries will do for Node: what matters is how far it gets.
    std::fs::copy(redoma_program(), root.join("usr/bin/node")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // An image whose links lead to the host, for whoever follows them before the root has changed.
    for name in ["opt", "srv", ".redoma"] {
        std::os::unix::fs::symlink(&outside, root.join(name)).unwrap();
    }
    for mode in Mode::available() {
        let code = "const x: number = 1; console.log(x)";
        let mut command = redoma(mode, ["run", "--lang", "ts", "--runtime"]);
        let (exit, _, stderr) = text_of(command.arg(&root).args(["-c", code]));
        assert!(
            exit == 2 && stderr.contains("--enable-source-maps"),
            "it was not compiled and started: {stderr}"
        );
        let left: Vec<_> = std::fs::read_dir(&outside).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "written on the host: {left:?}");
    }
}

#[test]
fn an_interrupted_run_ends_at_once_and_is_reported() {
    let mode = Mode::available()[0];
    let child = redoma(mode, ["run", "--json", "-c", "import time; print('up'); time.sleep(60)"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(parse_report(&output).ending, Ending::Cancelled);
}

#[test]
fn results_survive_folders_that_the_program_locked() {
    let code = "import os\nopen('kept', 'w').write('k')\nos.mkdir('d')\nopen('d/inner', 'w').write('i')\nos.chmod('d/inner', 0)\nos.chmod('d', 0o400)\nos.chmod('/mnt/data', 0)";
    for mode in Mode::available() {
        let folder = folder();
        let out = folder.path().join("out");
        let mut command = redoma(mode, ["run", "--json", "--out"]);
        command.arg(&out).args(["-c", code]);
        let report = redoma_tests::report_of(&mut command);
        let names: Vec<_> = report.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["d/inner", "kept"], "{:?}", report.skipped_files);
        assert_eq!(std::fs::read_to_string(out.join("d/inner")).unwrap(), "i");
    }
}

#[test]
fn a_report_stays_small_whatever_the_names() {
    let code = "import os\nfor i in range(60):\n  os.mkdir('x' * 250)\n  os.chdir('x' * 250)\nfor i in range(2000):\n  os.symlink('a', '%04d' % i + 'y' * 240)\n  open('%04d' % i + 'z' * 240, 'w')";
    let mut command = redoma(Mode::available()[0], ["run", "--json", "-c", code]);
    let output = command.output().unwrap();
    assert!(output.stdout.len() < 8 << 20, "{} bytes", output.stdout.len());
    let report = parse_report(&output);
    assert!(report.unlisted_files > 3000, "{}", report.unlisted_files);
}

#[test]
fn standard_streams_can_be_opened_by_name() {
    for mode in Mode::available() {
        let report =
            run_json(mode, ["--lang", "bash", "-c", "echo out > /dev/stdout; echo err > /dev/stderr"]);
        assert_eq!((report.stdout.text.as_str(), report.stderr.text.as_str()), ("out\n", "err\n"));
    }
}

#[test]
fn what_an_administrator_put_into_usr_local_is_not_there() {
    for mode in Mode::available() {
        let report = run_json(mode, ["--lang", "bash", "-c", "ls -A /usr/local | wc -l"]);
        assert_eq!(report.stdout.text.trim(), "0");
    }
}

/// Each mistake gets one line that says what to do, and the exit code for "redoma itself".
#[test]
fn mistakes_get_one_clear_line() {
    let mode = Mode::available()[0];
    let folder = folder();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let unknown_key = file("a.toml", "[limits]\nwal = \"3s\"\n");
    let not_toml = file("b.toml", "limits = [\n");
    let zero = file("c.toml", "[limits]\nmemory = 0\n");
    let script = file("main.py", "print(1)");
    let odd = file("odd.xyz", "");
    let cases: [(&[&str], &str); 16] = [
        (&["run", "/no/such/file.py"], "can't read /no/such/file.py: No such file or directory"),
        (&["run", "/"], "is a folder"),
        (&["run", &odd], "can't tell the language"),
        (&["run", "--lang", "cobol", "-c", "x"], "unknown language `cobol`; choose one of bash, js, py, ts"),
        (&["run", "--profile", "/no/such.toml", "-c", ""], "can't read /no/such.toml"),
        (&["run", "--profile", &unknown_key, "-c", ""], "a.toml:2: unknown key `wal`; did you mean `wall`?"),
        (&["run", "--profile", &not_toml, "-c", ""], "b.toml:"),
        (&["run", "--profile", &zero, "-c", ""], "limit `memory` = 0B is out of range; it goes from 8MiB"),
        (&["run", "--profile", "nope", "-c", ""], "there is no profile `nope`"),
        (&["run", "--wall", "0s", "-c", ""], "limit `wall` = 0ms is out of range; it goes from 10ms to 1d"),
        (&["run", "--pids", "9999999999", "-c", ""], "limit `pids`"),
        (&["run", "--in", "/no/such", "-c", ""], "input file /no/such: No such file"),
        (&["run", "--in", "/dev", "-c", ""], "is not a plain file"),
        (&["run", "--in", &script, "-c", ""], "has the name of the program itself"),
        (&["run", "--runtime", "nope", "-c", ""], "the runtime `nope` is not prepared; run `redoma setup`"),
        (&["run", "--out", &script, "-c", ""], "is a file; name a folder"),
    ];
    for (arguments, expected) in cases {
        let (code, stdout, stderr) = text_of(&mut redoma(mode, arguments));
        assert_eq!(code, 125, "{arguments:?}: {stderr}");
        assert!(stdout.is_empty(), "{arguments:?}: {stdout}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{arguments:?}: {stderr}");
    }
    for arguments in [&["run", "--memory", "lots", "-c", ""][..], &["run"], &["fly"]] {
        let (code, ..) = text_of(&mut redoma(mode, arguments));
        assert_eq!(code, 2, "{arguments:?}");
    }
}

#[test]
fn without_a_usable_cgroup_a_run_is_refused_unless_that_is_waived() {
    if Mode::Root.unavailable().is_some() {
        return;
    }
    // A uid that nobody delegated anything to.
    let folder = folder();
    let run = |config: Option<&str>| {
        let mut command = redoma(Mode::Rootless, ["run", "-c", "print('ran')"]);
        std::os::unix::process::CommandExt::uid(&mut command, 54399);
        std::os::unix::process::CommandExt::gid(&mut command, 54399);
        if let Some(text) = config {
            let path = folder.path().join("redoma.toml");
            std::fs::write(&path, text).unwrap();
            command.env("REDOMA_CONFIG", path);
        }
        text_of(&mut command)
    };
    let (code, stdout, stderr) = run(None);
    assert_eq!((code, stdout.as_str()), (125, ""));
    assert!(
        stderr.contains("lacks the isolation layer `cgroup`") && stderr.contains("setup --delegate"),
        "{stderr}"
    );
    let (code, stdout, stderr) = run(Some("[isolation]\nallow_missing = [\"cgroup\"]\n"));
    assert_eq!((code, stdout.as_str()), (0, "ran\n"), "{stderr}");
}

#[test]
fn any_root_file_system_folder_is_a_runtime() {
    let folder = folder();
    let root = folder.path().join("image");
    // The smallest image that there is: bash and what it is linked to.
    let libraries = std::process::Command::new("ldd").arg("/usr/bin/bash").output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/bash"]);
    for path in paths {
        let target = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(path, target).unwrap();
    }
    std::fs::create_dir_all(root.join("root")).unwrap();
    std::fs::write(root.join("root/private"), "").unwrap();
    for mode in Mode::available() {
        let mut command = redoma(mode, ["run", "--lang", "bash", "--runtime"]);
        command
            .arg(&root)
            .args(["-c", "echo $BASH_VERSION; for f in /*; do echo $f; done; echo made > made"]);
        let (code, stdout, stderr) = text_of(&mut command);
        assert_eq!(code, 0, "{stderr}");
        assert!(!stdout.contains("/usr") && !stdout.contains("/root") && stdout.contains("/bin"), "{stdout}");
        let (code, _, stderr) = text_of(redoma(mode, ["run", "--runtime"]).arg(&root).args(["-c", "1"]));
        assert!(code == 125 && stderr.contains("the runtime has no py"), "{stderr}");
    }
}

#[test]
fn a_full_disk_on_our_side_is_said_and_nothing_half_written_stays() {
    if Mode::Root.unavailable().is_some() {
        return;
    }
    // A device that has no room: one megabyte of tmpfs.
    let folder = folder();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let path = small.to_str().unwrap();
    mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path]);
    let code = "open('big', 'wb').write(bytes(5 << 20)); print('done')";
    let (exit, stdout, stderr) = text_of(redoma(Mode::Root, ["run", "--out"]).arg(&small).args(["-c", code]));
    let left: Vec<_> = std::fs::read_dir(&small).unwrap().flatten().map(|entry| entry.file_name()).collect();
    mount(&["umount", path]);
    assert_eq!((exit, stdout.as_str()), (125, "done\n"));
    assert!(stderr.contains("No space left on device"), "{stderr}");
    assert!(left.is_empty(), "left {left:?}");
}

#[test]
fn programs_that_talk_over_the_loopback_find_the_socket_options_that_they_set() {
    let python = "
import asyncio, http.server, multiprocessing, socket, threading, urllib.request
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/').status == 200
async def talk():
    async def answer(reader, writer):
        writer.get_extra_info('socket').setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer.write(await reader.readline()); await writer.drain(); writer.close()
    server = await asyncio.start_server(answer, '127.0.0.1', 0, reuse_port=True)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b'hello\\n')
    assert await reader.readline() == b'hello\\n'
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(asyncio.DatagramProtocol, ('127.0.0.1', 0), allow_broadcast=True)
asyncio.run(talk())
with multiprocessing.Manager() as manager:
    assert list(manager.list([1, 2])) == [1, 2]
plug = socket.socket()
for name in 'KEEPIDLE KEEPINTVL KEEPCNT USER_TIMEOUT CORK QUICKACK DEFER_ACCEPT'.split():
    plug.setsockopt(socket.IPPROTO_TCP, getattr(socket, 'TCP_' + name), 1)
for name in 'KEEPALIVE SNDBUF RCVBUF REUSEADDR REUSEPORT'.split():
    plug.setsockopt(socket.SOL_SOCKET, getattr(socket, 'SO_' + name), 1)
plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))
plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(16))
socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)
print('all set')
";
    let node = "
const http = require('http'), dgram = require('dgram'), net = require('net');
const server = http.createServer((request, answer) => { request.socket.setNoDelay(true); request.socket.setKeepAlive(true, 1000); answer.end('hello'); });
server.listen(0, '::', () => {
  http.get({ port: server.address().port, agent: new http.Agent({ keepAlive: true }) }, (answer) => {
    answer.on('data', (text) => {
      const plug = dgram.createSocket({ type: 'udp4', reuseAddr: true });
      plug.bind(0, '127.0.0.1', () => {
        plug.setBroadcast(true); plug.setTTL(3); plug.setMulticastTTL(3); plug.setRecvBufferSize(9000);
        console.log('all set'); process.exit(0);
      });
    });
  });
});
";
    for mode in Mode::available() {
        for (language, code) in [("py", python), ("js", node)] {
            let report = run_json(mode, ["--lang", language, "-c", code]);
            assert_eq!(report.stdout.text, "all set\n", "{language} {mode:?}: {}", report.stderr.text);
        }
    }
}

#[test]
fn programs_that_lock_files_work_as_ever() {
    let code = "
import fcntl, multiprocessing, os, sqlite3, time
for mode in ('delete', 'wal'):
    base = sqlite3.connect(f'{mode}.db', isolation_level=None)
    assert base.execute(f'pragma journal_mode={mode}').fetchone() == (mode,)
    base.execute('create table t (a)')
    def add(number):
        own = sqlite3.connect(f'{mode}.db', isolation_level=None, timeout=60)
        for value in range(200):
            own.execute('insert into t values (?)', (value,))
    workers = [multiprocessing.Process(target=add, args=(number,)) for number in range(3)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert base.execute('select count(*) from t').fetchone() == (600,)
with open('lock', 'w') as file:
    for number in range(20_000):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, number * 2)
        fcntl.lockf(file, fcntl.LOCK_UN, 1, number * 2)
    for number in range(1000):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, number * 2)
    for _ in range(1000):
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
end = time.process_time() + 0.5
while time.process_time() < end: pass
assert os.system('flock other.lock true') == 0
print('all locked')
";
    for mode in Mode::available() {
        let report = run_json(mode, ["--lang", "py", "--wall", "2m", "-c", code]);
        assert_eq!(report.stdout.text, "all locked\n", "{mode:?}: {:?} {}", report.limit, report.stderr.text);
    }
}
