use super::{ALL_KINDS, Level, Risk, Scanned, Subject, scan_file, subject_of};
use crate::facts::{Language, Source, Why};

fn scan(path: &str, code: &str) -> Scanned {
    let subject = subject_of(path, code.as_bytes()).expect("a file to look at");
    scan_file(path, code.as_bytes(), subject)
}

/// Kinds and levels, in the order of the text.
fn found(path: &str, code: &str) -> Vec<(&'static str, Level)> {
    scan(path, code).risks.iter().map(|risk| (risk.kind.id, risk.level)).collect()
}

#[track_caller]
fn is(path: &str, code: &str, kind: &str, level: Level) {
    let found = found(path, code);
    assert!(found.contains(&(kind, level)), "{code}\nis not {kind} {level:?} but {found:?}");
}

#[track_caller]
fn is_not(path: &str, code: &str, kind: &str) {
    let found = found(path, code);
    assert!(!found.iter().any(|(id, _)| *id == kind), "{code}\nis {found:?}");
}

#[test]
fn python_kinds_are_found_and_rated_by_source() {
    use Level::{Critical, High, Low, Medium};
    let head = "import os, subprocess, pickle, marshal, shelve, yaml, importlib, ctypes, code, pty, jinja2, asyncio\n\
                import pandas as pd, torch, joblib, numpy as np, runpy, sys\n";
    for (line, kind, level) in [
        ("eval('1 + 1')", "python-eval", Low),
        ("eval(x)", "python-eval", Medium),
        ("def f(p): exec(p)", "python-eval", High),
        ("exec(input())", "python-eval", High),
        ("map(eval, x)", "python-eval", Medium),
        ("compile(source, 'x', 'exec')", "python-compile", Medium),
        ("os.system('ls')", "python-shell", Low),
        ("os.system('ls ' + sys.argv[1])", "python-shell", Critical),
        ("def f(p): os.popen(f'ls {p}')", "python-shell", High),
        ("subprocess.getoutput(x)", "python-shell", Medium),
        ("subprocess.run('ls', shell=True)", "python-subprocess-shell", Low),
        ("subprocess.run(sys.argv[1], shell=True)", "python-subprocess-shell", Critical),
        ("def f(p): subprocess.Popen(p, shell=True)", "python-subprocess-shell", High),
        ("module.run_command(x, use_unsafe_shell=True)", "python-subprocess-shell", Medium),
        ("subprocess.run(['ls', '-l'])", "python-subprocess", Low),
        ("def f(p): subprocess.run(['ls', p])", "python-subprocess", Medium),
        ("def f(p): subprocess.run(p)", "python-subprocess", High),
        ("def f(p): subprocess.run([p, 'x'])", "python-subprocess", High),
        ("def f(p): asyncio.create_subprocess_exec('ls', p)", "python-subprocess", Medium),
        ("os.execvp(x, [x])", "python-subprocess", Medium),
        ("pty.spawn('/bin/sh')", "python-pty", Medium),
        ("def f(c, p): c.exec_command(p)", "python-remote-command", High),
        ("pickle.load(open('x', 'rb'))", "python-pickle", High),
        ("pickle.loads(x)", "python-pickle", Medium),
        ("marshal.loads(x)", "python-marshal", Medium),
        ("def f(p): shelve.open(p)", "python-shelve", Medium),
        ("yaml.load(x)", "python-yaml-load", Medium),
        ("yaml.load(open('x'), Loader=yaml.Loader)", "python-yaml-load", High),
        ("def f(p): importlib.import_module(p)", "python-dynamic-import", Medium),
        ("__import__(sys.argv[1])", "python-dynamic-import", High),
        ("def f(p): ctypes.CDLL(p)", "python-native-library", Medium),
        ("code.interact()", "python-interactive", Medium),
        ("def f(p): jinja2.Template(p)", "python-template", High),
        ("def f(env, p): env.from_string(p)", "python-template", High),
        ("def f(p): pd.eval(p)", "python-pandas-eval", High),
        ("def f(df, p): df.query(f'a == {p}')", "python-pandas-eval", High),
        ("torch.load(x)", "python-model-load", Medium),
        ("joblib.load(x)", "python-model-load", Medium),
        ("np.load(x, allow_pickle=True)", "python-model-load", Medium),
        ("runpy.run_path(x)", "python-run-file", Medium),
        ("import inspect\ninspect.get_annotations(x, eval_str=True)", "python-eval", Medium),
        ("import pkgutil\ndef f(p): pkgutil.get_data(p, 'x')", "python-dynamic-import", Medium),
        ("from importlib.resources import files\nfiles(sys.argv[1])", "python-dynamic-import", High),
        ("def f(p, q):\n  c = ['sh', '-c', p]\n  q(lambda: q.run(c))", "python-subprocess-shell", High),
        ("import pypsrp\ndef f(ps, p): ps.add_script(p)", "python-remote-command", High),
        (
            "try:\n  from pypsrp.powershell import PowerShell\nexcept ImportError: pass\n\
             def f(p):\n  ps = PowerShell(x)\n  ps.add_script(p)",
            "python-remote-command",
            High,
        ),
    ] {
        is("a.py", &format!("{head}{line}\n"), kind, level);
    }
}

#[test]
fn what_is_safe_in_python_is_not_found() {
    let head = "import os, subprocess, yaml, importlib, ctypes, jinja2, re, ast, torch\nimport numpy as np\n";
    for (line, kind) in [
        ("re.compile(x)", "python-compile"),
        ("ast.literal_eval(x)", "python-eval"),
        ("model.eval()", "python-eval"),
        ("def eval(x): pass\neval(y)", "python-eval"),
        ("compile(x, 'f', 'exec', ast.PyCF_ONLY_AST)", "python-compile"),
        ("yaml.load(x, Loader=yaml.SafeLoader)", "python-yaml-load"),
        ("yaml.load(\n  x,\n  Loader=yaml.CSafeLoader,\n)", "python-yaml-load"),
        ("yaml.safe_load(x)", "python-yaml-load"),
        ("importlib.import_module('json')", "python-dynamic-import"),
        ("ctypes.CDLL('libc.so.6')", "python-native-library"),
        ("jinja2.Template('hi {{ x }}')", "python-template"),
        ("torch.load(x, weights_only=True)", "python-model-load"),
        ("np.load(x)", "python-model-load"),
        ("subprocess.run(x, shell=False)", "python-subprocess-shell"),
        ("import inspect\ninspect.signature(x)", "python-eval"),
        ("from importlib.resources import files\nfiles('here')", "python-dynamic-import"),
        ("q.run(['sh', '-c', 'ls'])", "python-subprocess-shell"),
        ("q.run(['ls', '-c', x])", "python-subprocess-shell"),
        ("page.add_script(x)", "python-remote-command"),
        ("# eval(x)", "python-eval"),
        ("s = 'eval(x)'", "python-eval"),
    ] {
        is_not("a.py", &format!("{head}{line}\n"), kind);
    }
    is_not("a.py", "def f(model, p): model.query(f'{p}')", "python-pandas-eval");
}

#[test]
fn javascript_kinds_are_found_and_rated_by_source() {
    use Level::{Critical, High, Low, Medium};
    let head = "const cp = require('child_process'), vm = require('vm'), ser = require('node-serialize');\n";
    for (line, kind, level) in [
        ("eval('1')", "js-eval", Low),
        ("const f = p => eval(p)", "js-eval", High),
        ("new Function('a', x)", "js-function", Medium),
        ("vm.runInNewContext(x)", "js-vm", Medium),
        ("app.get('/', (req, res) => cp.exec(req.query.c))", "js-exec", Critical),
        ("cp.execSync('ls')", "js-exec", Low),
        ("function f(p) { cp.execSync(`ls ${p}`) }", "js-exec", High),
        ("function f(p) { cp.spawn(p, [], { shell: true }) }", "js-spawn-shell", High),
        ("function f(p) { cp.spawn('ls', [p]) }", "js-spawn", Medium),
        ("function f(p) { cp.execFile(p) }", "js-spawn", High),
        ("setTimeout('f()', 1)", "js-timer-string", Low),
        ("function f(p) { return import(p) }", "js-dynamic-import", Medium),
        ("require(process.argv[2])", "js-dynamic-import", High),
        ("ser.unserialize(x)", "js-unserialize", High),
        ("process.binding('fs')", "js-process-binding", Medium),
    ] {
        is("a.js", &format!("{head}{line}\n"), kind, level);
        is("a.ts", &format!("{head}{line}\n"), kind, level);
    }
    for (line, kind) in [
        ("setTimeout(f, 1)", "js-timer-string"),
        ("setTimeout(() => 1, 1)", "js-timer-string"),
        ("require('./x')", "js-dynamic-import"),
        ("import('x')", "js-dynamic-import"),
        ("/a/.exec(x)", "js-exec"),
        ("cp.spawn('ls', { shell: false })", "js-spawn-shell"),
        ("o.eval(x)", "js-eval"),
        ("// eval(x)", "js-eval"),
    ] {
        is_not("a.js", &format!("{head}{line}\n"), kind);
    }
}

#[test]
fn shell_kinds_are_found() {
    use Level::{Critical, High, Low, Medium};
    for (line, kind, level) in [
        ("eval \"$1\"", "shell-eval", High),
        ("eval \"$x\"", "shell-eval", Medium),
        ("eval \"$(ssh-agent)\"", "shell-eval", Medium),
        ("eval `cat x`", "shell-eval", Critical),
        ("bash -c \"ls $1\"", "shell-c", High),
        ("sh -c \"$cmd\"", "shell-c", Medium),
        ("source \"$file\"", "shell-source", Medium),
        ("source \"$here/lib.sh\"", "shell-source", Low),
        ("curl -s https://x | sh", "shell-download-run", High),
        ("wget -qO- x | sudo bash", "shell-download-run", High),
        ("sh -c \"$(curl -fsSL x)\"", "shell-download-run", High),
        ("bash <(curl x)", "shell-download-run", High),
        ("find . | xargs -I{} sh -c 'rm {}'", "shell-xargs", High),
        ("ssh host \"rm $1\"", "shell-ssh", Medium),
        ("docker run --privileged x", "container-privileged", High),
    ] {
        is("a.sh", &format!("#!/bin/bash\n{line}\n"), kind, level);
    }
    for (line, kind) in [
        ("bash -c 'ls \"$1\"' _ x", "shell-c"),
        ("bash -c 'ls'", "shell-c"),
        ("source ./lib.sh", "shell-source"),
        ("curl x | jq .", "shell-download-run"),
        ("curl x | python3 -m json.tool", "shell-download-run"),
        ("ssh host ls", "shell-ssh"),
        ("echo eval", "shell-eval"),
    ] {
        is_not("a.sh", &format!("{line}\n"), kind);
    }
    is("a.py", "import os\nos.system('curl x | sh')", "shell-download-run", High);
}

#[test]
fn sudoers_lines_are_rated() {
    use Level::{Critical, High, Low, Medium};
    for (line, expected) in [
        ("ana ALL=(ALL) NOPASSWD: ALL", Some(("sudoers-all", Critical))),
        ("ALL ALL=(ALL) ALL", Some(("sudoers-all", Critical))),
        ("ana ALL=(ALL:ALL) ALL", Some(("sudoers-all", Medium))),
        ("%sudo ALL=(ALL:ALL) ALL", Some(("sudoers-all", Low))),
        ("root ALL=(ALL) ALL", None),
        ("# ana ALL=(ALL) NOPASSWD: ALL", None),
        ("ana ALL=NOPASSWD: /usr/bin/systemctl restart web*", Some(("sudoers-wildcard", High))),
        ("ana ALL=(root) NOPASSWD: /usr/bin/vim", Some(("sudoers-escape", High))),
        ("ana ALL=(root) /usr/bin/less /var/log/x", Some(("sudoers-escape", Medium))),
        ("ana ALL=(root) NOPASSWD: /usr/sbin/reboot", None),
        ("Defaults:ana !authenticate", Some(("sudoers-all", High))),
        ("Cmnd_Alias X = /bin/a*", None),
        ("ana ALL=(ALL) \\\n  NOPASSWD: ALL", Some(("sudoers-all", Critical))),
    ] {
        let found = found("/etc/sudoers.d/x", &format!("{line}\n"));
        assert_eq!(found.first().copied(), expected, "{line}");
    }
}

#[test]
fn containers_that_give_away_the_host_are_found() {
    let compose = "services:\n  a:\n    privileged: true\n    pid: host\n    cap_add:\n      - SYS_ADMIN\n    cap_drop:\n      - ALL\n    volumes:\n      - /var/run/docker.sock:/var/run/docker.sock\n";
    let ids: Vec<_> = found("docker-compose.yml", compose).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["container-privileged", "container-host", "container-host", "container-docker-socket"]);
    assert_eq!(found("x.yml", "privileged: false\n# privileged: true\n"), []);
    let dockerfile = "FROM x\nRUN apt-get update && \\\n    curl -s https://x | sh\n";
    let risks = scan("Dockerfile", dockerfile).risks;
    assert_eq!((risks.len(), risks[0].kind.id, risks[0].at.line), (1, "shell-download-run", 2));
}

#[test]
fn scripts_of_a_package_are_read_as_shell_where_they_stand() {
    let package = r#"{
  "name": "eval",
  "scripts": {
    "build": "tsc -p .",
    "postinstall": "curl -s https://x/setup.sh | sh",
    "start": "sh -c \"node $npm_config_file\"", "two": "eval \"$X\""
  },
  "config": { "start": "curl https://y | sh" }
}"#;
    let risks = scan("web/package.json", package).risks;
    let places: Vec<_> = risks.iter().map(|risk| (risk.kind.id, risk.at.line, risk.at.column)).collect();
    assert_eq!(places, [("shell-download-run", 5, 20), ("shell-c", 6, 14), ("shell-eval", 6, 56)]);
    assert_eq!(scan("package.json", r#"{"name": "x"}"#), Scanned::default());
    assert_eq!(scan("package.json", "{").unread, Some(Why::NotParsed));
    assert_eq!(subject_of("tsconfig.json", b"{}"), None);
}

#[test]
fn files_are_known_by_name_or_first_line() {
    assert_eq!(subject_of("a/b.py", b""), Some(Subject::Code(Language::Python)));
    assert_eq!(subject_of("run", b"#!/usr/bin/env -S python3 -u\n"), Some(Subject::Code(Language::Python)));
    assert_eq!(subject_of("run", b"#!/bin/sh\n"), Some(Subject::Code(Language::Bash)));
    assert_eq!(subject_of("etc/sudoers.d/me", b""), Some(Subject::Sudoers));
    assert_eq!(subject_of("jquery.min.js", b""), None);
    assert_eq!(subject_of("README.md", b"# hi"), None);
}

#[test]
fn cells_of_a_notebook_are_named() {
    let notebook = r#"{"cells": [
        {"cell_type": "markdown", "source": "eval(x)"},
        {"cell_type": "code", "source": ["import subprocess as sp\n", "x = 1"]},
        {"cell_type": "code", "source": "y = 2\nsp.run(input(), shell=True)"},
        {"cell_type": "code", "source": "%%bash\neval \"$1\""}
    ], "metadata": {}}"#;
    let risks = scan("a.ipynb", notebook).risks;
    let places: Vec<_> = risks.iter().map(|risk| (risk.kind.id, risk.cell, risk.at.line)).collect();
    assert!(places.contains(&("python-subprocess-shell", Some(3), 2)), "{places:?}");
    assert_eq!(scan("b.ipynb", "not json").unread, Some(Why::NotParsed));
}

#[test]
fn a_comment_with_a_reason_answers_for_a_finding() {
    let plain = scan("a.py", "eval(x)  # redoma: ignore[python-eval] x is checked above\n");
    assert_eq!((plain.risks.len(), plain.ignored), (0, 1));
    let above = scan("a.py", "# redoma: ignore[python-eval, python-shell] checked\neval(x)\n");
    assert_eq!((above.risks.len(), above.ignored), (0, 1));
    let other = scan("a.py", "eval(x)  # redoma: ignore[python-shell] no\n");
    assert_eq!(other.risks.len(), 1);
    let without: Vec<_> = found("a.py", "eval(x)  # redoma: ignore[python-eval]\n");
    assert_eq!(without, [("ignore-without-reason", Level::Low), ("python-eval", Level::Medium)]);
    let in_text = scan("a.py", "eval(x + 'redoma: ignore[python-eval] no')\n");
    assert_eq!(in_text.risks.len(), 1);
}

#[test]
fn fingerprints_survive_moves_and_tell_twins_apart() {
    let prints = |code: &str| -> Vec<String> {
        scan("a.py", code).risks.into_iter().map(|Risk { fingerprint, .. }| fingerprint).collect()
    };
    let before = prints("eval(x)\n");
    assert_eq!(prints("import os\n\n\nif y:\n    eval(x)\n"), before);
    let twins = prints("eval(x)\neval(x)\n");
    assert_eq!(twins[0], before[0]);
    assert_ne!(twins[0], twins[1]);
    assert_ne!(scan("b.py", "eval(x)\n").risks[0].fingerprint, before[0]);
}

#[test]
fn what_could_not_be_read_is_said() {
    assert_eq!(scan("a.js", "const = 1").unread, Some(Why::NotParsed));
    assert_eq!(scan("a.py", &"(".repeat(100_000)).unread, Some(Why::TooDeep));
    let latin = scan_file("a.py", b"# \xe9\neval(x)\n", Subject::Code(Language::Python));
    assert_eq!(latin.risks.len(), 1);
    assert_eq!(latin.risks[0].origin, Some(Source::Variable));
}

#[test]
fn each_kind_explains_itself() {
    let mut ids: Vec<_> = ALL_KINDS.iter().map(|kind| kind.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), ALL_KINDS.len(), "two kinds have the same id");
    for kind in ALL_KINDS {
        assert!(kind.why.len() > 20 && kind.advice.len() > 5 && !kind.title.is_empty(), "{}", kind.id);
    }
}
