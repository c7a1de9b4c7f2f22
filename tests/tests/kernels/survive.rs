//! Variables that survive the end of a cell: one after the other, beside threads, pipes and other languages, with much data.

use std::time::Duration;

use redoma_tests::Mode;

use crate::endings::{BEFORE, LIMITS, LOOK, QUICK};
use crate::session::Session;
use crate::{World, each};

/// Kills in a row, each right after the other, and with cells between: of the very first cell, too. By root's server, and by a
/// plain user's.
#[test]
fn a_session_survives_one_kill_after_the_other() {
    for mode in Mode::available() {
        let world = World::in_mode(mode, "", LIMITS, |command| command);
        let session = Session::new(&world.server);
        let first = session.cell("import os; os._exit(1)");
        assert!(first.is("restored") && !first.is("lost"), "{first}");
        // So much that the checkpoints are worth to be ended when memory runs out.
        assert_eq!(session.printed("data = bytearray(b'x') * (60 << 20); n = 0; print(n)"), "0");
        for round in 1..=3 {
            for code in [
                "import os; n = -1; os._exit(1)",
                "n = -1; import ctypes; ctypes.string_at(0)",
                "n = -1; hoard = []\nwhile True: hoard.append(bytearray(b'x') * (1 << 20))",
                "n = -1; import os; os.abort()",
            ] {
                let killed = session.cell(code);
                assert!(killed.is("restored"), "{}: {code}: {killed}", mode.name());
                assert!(killed.notes().is_empty(), "{}: {code}: {killed}", mode.name());
                assert!(killed.took < QUICK, "{:?}", killed.took);
            }
            let killed = session.cell_within("py", "n = -1\nwhile True: pass", 200);
            assert!(killed.is("restored"), "{killed}");
            assert_eq!(session.printed("n += 1; print(n, len(data) >> 20)"), format!("{round} 60"));
        }
        session.undo(1);
        assert_eq!(session.printed("print(n)"), "2");
        world.assert_sound();
    }
}

/// Something of an earlier cell ends the process while nobody runs anything: the next cell is not to blame, and runs.
#[test]
fn a_kernel_that_dies_between_cells_is_there_for_the_next_one() {
    let world = World::with("", LIMITS);
    for (name, code) in [
        ("timer", "import threading\nthreading.Timer(0.2, os._exit, [1]).start()"),
        (
            "alarm",
            "import signal\nsignal.signal(14, signal.SIG_DFL); signal.setitimer(signal.ITIMER_REAL, 0.2)",
        ),
        (
            "child",
            "import subprocess\nsubprocess.Popen(['bash', '-c', f'sleep 0.2; kill -9 {os.getpid()}'], stdin=subprocess.DEVNULL)",
        ),
    ] {
        let session = Session::new(&world.server);
        session.cell(BEFORE);
        let first = session.cell(code);
        assert!(first.went_on(), "{name}: {first}");
        // bash tries a fork again after a second, if the sandbox has as many processes as it may.
        std::thread::sleep(Duration::from_secs(4));
        let next = session.cell(LOOK);
        assert_eq!(next.stdout(), "['a'] 42 2 kept\n", "{name}: {next}");
        assert!(
            !next.notes().is_empty() || next.is("restarted"),
            "{name}: nobody says that the process was lost: {next}"
        );
    }
    world.assert_sound();
}

#[test]
fn a_cell_after_one_that_died_between_cells_may_die_too() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    session.cell("x['later'] = 1; import signal; signal.setitimer(signal.ITIMER_REAL, 0.1)");
    std::thread::sleep(Duration::from_millis(600));
    for _ in 0..2 {
        let next = session.cell("os._exit(3)");
        assert!(next.is("restored"), "{next}");
    }
    assert_eq!(session.printed(LOOK), "['a', 'later'] 42 2 kept");
    world.assert_sound();
}

/// The checkpoints are processes of the sandbox, and code may kill any of those.
#[test]
fn a_cell_that_kills_its_checkpoints_is_told_what_that_costs() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    let others = "me = os.getpid()\nfor pid in range(2, 500):\n    try:\n        if pid != me: os.kill(pid, 9)\n    except OSError: pass\n";
    // By itself that harms nobody: there are new ones after it.
    let done = session.cell(others);
    assert!(done.went_on(), "{}", done);
    assert!(session.cell(LOOK).took < QUICK);
    let killed = session.cell("os._exit(1)");
    assert!(killed.is("restored"), "{}", killed);
    assert_eq!(session.printed(LOOK), "['a'] 42 2 kept");
    // With itself, nobody is left who knows the variables.
    let done = session.cell(&format!("{others}os.kill(me, 9)"));
    assert!(done.is("lost") && !done.is("restored"), "{}", done);
    assert!(done.error().1.contains("variables are gone"), "{}", done);
    assert!(done.took < QUICK, "{:?}", done.took);
    let next = session.cell("print('x' in globals(), __import__('os').path.exists('/mnt/data'))");
    assert_eq!(next.stdout(), "False True\n");
    assert!(next.is("restarted"), "{}", next);
    world.assert_sound();
}

/// Threads and processes of earlier cells are no part of a checkpoint: notes say so before it matters.
#[test]
fn what_goes_on_beside_the_cells_is_lost_with_a_kill_and_that_is_said() {
    let world = World::with("", LIMITS);
    each(
        &[
            (
                "thread",
                "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start()",
                "t.is_alive()",
            ),
            (
                "spinning thread",
                "import threading\ndef spin():\n    while True: pass\nt = threading.Thread(target=spin, daemon=True); t.start()",
                "t.is_alive()",
            ),
            (
                "process",
                "import subprocess\np = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)",
                "p.poll() is None",
            ),
        ],
        |(name, ..)| (*name).to_owned(),
        |(_, start, is_alive)| {
            let session = Session::new(&world.server);
            session.cell(BEFORE);
            let started = session.cell(start);
            assert!(
                started.notes().contains("on: should a later cell have to be ended by force"),
                "{}",
                started
            );
            assert_eq!(session.printed(&format!("y = 5; print({is_alive})")), "True");
            let killed = session.cell("os._exit(1)");
            assert!(killed.is("restored"), "{}", killed);
            assert_eq!(session.printed(&format!("print({is_alive}, y)")), "False 5");
            assert_eq!(session.printed(LOOK), "['a'] 42 2 kept");
        },
    );
    world.assert_sound();
}

/// A copy would hold the other end of a pipe open for ever: there is none, and that is said.
#[test]
fn with_an_open_pipe_there_is_no_checkpoint_and_that_is_said() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    let opened = session.cell(
        "import subprocess\np = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
    );
    assert!(opened.went_on(), "{}", opened);
    let later = session.cell("y = 1");
    assert!(
        format!("{}{}", opened.notes(), later.notes()).contains("pipe"),
        "not said before it matters: {opened} {later}"
    );
    let killed = session.cell("os._exit(1)");
    assert!(killed.is("restored") && killed.notes().contains("no checkpoint"), "{}", killed);
    assert!(!killed.error().1.contains("as they were before it"), "the error says what is not so: {killed}");
    assert_eq!(session.printed("print('y' in globals(), 'p' in globals())"), "False False");
    assert_eq!(session.printed(LOOK), "['a'] 42 2 kept");
    // Whoever closes it is safe again.
    session.cell(
        "import subprocess\np = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
    );
    session.cell("p.communicate(b''); y = 2");
    let killed = session.cell("os._exit(1)");
    assert!(killed.is("restored") && !killed.notes().contains("no checkpoint"), "{}", killed);
    assert_eq!(session.printed("print(y)"), "2");
    world.assert_sound();
}

#[test]
fn variables_survive_after_an_await_and_after_other_languages() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    assert_eq!(session.printed("import asyncio\nawait asyncio.sleep(0.01)\ny = 1; print(y)"), "1");
    let killed = session.cell("y = 2; await asyncio.sleep(0); os._exit(1)");
    assert!(killed.is("restored") && killed.notes().is_empty(), "{}", killed);
    assert_eq!(session.printed("await asyncio.sleep(0.01); print(y)"), "1");

    assert_eq!(session.printed_in("js", "globalThis.z = 5; let w = 6; console.log(z + w)"), "11");
    assert_eq!(session.printed_in("bash", "A=3; f() { echo f$A; }; cd /tmp; f"), "f3");
    session.cell("y = 3");
    let killed = session.cell("y = 4; os._exit(1)");
    assert!(killed.is("restored"), "{}", killed);
    assert_eq!(session.printed("print(y)"), "3");
    assert_eq!(session.printed_in("bash", "f; pwd"), "f3\n/tmp");
    // Node can't be copied: either its variables are there, or somebody says that they are not.
    let after = session.cell_in("js", "console.log(typeof z, typeof w)");
    let is_said = format!("{}{}", killed.notes(), after.notes()).contains("JavaScript's variables");
    assert!(after.stdout() == "number number\n" || is_said, "{killed} {after}");
    world.assert_sound();
}

#[test]
fn bash_and_javascript_keep_what_they_had_before_a_killed_cell() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell_in("bash", "A=3; declare -a B=(1 2 3); f() { echo f; }; export C=x; cd /tmp");
    for code in ["A=4; kill -9 $$", "A=4; while :; do :; done", "A=4; exec /bin/false", "A=4; kill -SEGV $$"]
    {
        session.cell_within("bash", code, 400);
        assert_eq!(session.printed_in("bash", "echo $A ${B[2]} $C $PWD; f"), "3 3 x /tmp\nf", "{code}");
    }
    // JavaScript's are gone with Node, and that is said.
    session.cell_in("js", "let n = 3");
    for code in ["n = 4; process.kill(process.pid, 'SIGKILL')", "n = 4; for (;;);", "n = 4; process.abort()"]
    {
        let killed = session.cell_within("js", code, 1200);
        let after = session.cell_in("js", "console.log(typeof n)");
        let is_said = format!("{}{}", killed.notes(), after.notes()).contains("JavaScript's variables");
        assert!(after.stdout() == "number\n" || is_said, "{code}: {killed} {after}");
        assert_eq!(session.printed_in("js", "globalThis.n = 3; console.log(n)"), "3");
    }
    world.assert_sound();
}

/// pandas is in the runtime; so much data is copied by nobody.
#[test]
fn a_hundred_megabytes_of_pandas_data_survive_a_kill() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"768MiB\"\nwall = \"60s\"\n");
    let session = Session::new(&world.server);
    let made = session.printed(
        "import os, numpy as np, pandas as pd
df = pd.DataFrame(np.arange(13_000_000, dtype='float64').reshape(-1, 10), columns=list('abcdefghij'))
print(df.memory_usage().sum() > 100e6, df['j'].sum())",
    );
    assert!(made.starts_with("True"), "{made}");
    for code in [
        "df['j'] = 0.0; os._exit(1)",
        "df.iloc[:, :] = 1.0; os.abort()",
        "del df; hoard = bytearray(b'x') * (1 << 30)",
    ] {
        let killed = session.cell(code);
        assert!(killed.is("restored"), "{}", killed);
        let next = session.cell("print(True, df['j'].sum())");
        assert_eq!(next.stdout().trim_end(), made, "{next}");
        assert!(next.took < QUICK, "{:?}", next.took);
    }
    let killed = session.cell_within("py", "df['k'] = 1\nwhile True: pass", 1000);
    assert!(killed.is("restored"), "{}", killed);
    assert_eq!(session.printed("print(list(df) == list('abcdefghij'))"), "True");
    world.assert_sound();
}
