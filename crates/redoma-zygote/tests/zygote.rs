//! What a zygote does before it is one: which modules it takes on, and which not.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::process::Command;

use redoma_zygote::inside::ZYGOTE;

/// What `warm_up` says about modules with this content, named `one`, `two` and so on.
fn warm_up(modules: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in modules {
        std::fs::write(folder.path().join(format!("{name}.py")), content).unwrap();
    }
    // Everything but its last line, which begins its life.
    let (functions, last) = ZYGOTE.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(last, "main()");
    let names: Vec<_> = modules.iter().map(|(name, _)| *name).collect();
    let script = format!("{functions}\nprint(json.dumps(warm_up({names:?})))\n");
    let path = folder.path().join("zygote_under_test.py");
    std::fs::write(&path, script).unwrap();
    let done = Command::new("/usr/bin/python3").arg(&path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn ordinary_modules_are_taken_on_and_broken_ones_left_out() {
    let said = warm_up(&[
        ("one", "x = 1"),
        ("two", "import nosuchmodule"),
        ("three", "raise SystemExit(3)"),
        ("four", ""),
    ]);
    assert!(said.contains(r#""imported": ["one", "four"]"#), "{said}");
    assert!(said.contains("ModuleNotFoundError"), "{said}");
    assert!(said.contains("SystemExit"), "{said}");
    assert!(said.contains(r#""spoiled": false"#), "{said}");
}

#[test]
fn a_module_that_starts_threads_spoils_the_zygote_and_is_named() {
    let thread =
        "import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()";
    let said = warm_up(&[("one", ""), ("two", thread), ("three", "")]);
    assert!(said.contains(r#""module": "two", "reason": "it starts threads"#), "{said}");
    assert!(said.contains(r#""spoiled": true"#), "{said}");
}

#[test]
fn a_module_that_keeps_files_open_spoils_the_zygote_and_is_named() {
    let said = warm_up(&[("one", "f = open('/etc/passwd')")]);
    assert!(said.contains(r#""module": "one", "reason": "it keeps files open"#), "{said}");
    assert!(said.contains(r#""spoiled": true"#), "{said}");
}

#[test]
fn a_module_that_maps_shared_memory_spoils_the_zygote_and_is_named() {
    for module in
        ["import multiprocessing\nLOCK = multiprocessing.Lock()", "import mmap\nm = mmap.mmap(-1, 4096)"]
    {
        let said = warm_up(&[("one", module)]);
        assert!(said.contains(r#""module": "one", "reason": "it maps memory"#), "{said}");
        assert!(said.contains(r#""spoiled": true"#), "{said}");
    }
}

#[test]
fn a_module_whose_copies_crash_spoils_the_zygote_and_is_named() {
    let said = warm_up(&[("one", "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))")]);
    assert!(said.contains(r#""module": "one", "reason": "a copy of the process"#), "{said}");
}
