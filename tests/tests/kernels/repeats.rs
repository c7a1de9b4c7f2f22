//! Cells that have no checkpoint of their own, since they do the same when they are run again: nobody must see a difference.

use std::time::Duration;

use redoma_tests::host;
use redoma_tests::wait_until;
use serde_json::json;

use crate::World;
use crate::branch::branch;
use crate::lies::KNOWS;
use crate::session::Session;

/// From then on `again` is a list of the cells that were run again in this process.
const WATCH: &str = "again = []
def watched(self, code, number, original=type(session).again):
    again.append(number)
    original(self, code, number)
type(session).again = watched";

/// A session with that, and some cells which can be run again: the numbers 2 to 6.
fn counted(world: &World) -> Session<'_> {
    let session = Session::new(&world.server);
    session.cell(&format!("{KNOWS}\n{WATCH}"));
    for cell in
        ["x = 1", "x += 1\nname = f'{x:03}'", "def double(n): return n * 2", "row = [x, [name]]", "x * 21"]
    {
        let done = session.cell(cell);
        assert!(done.went_on() && done.answer["exit_code"] == 0, "{done}");
    }
    session
}

/// What there is to see of their variables.
const LOOK: &str = "print(x, name, row, double(4), _, Out, len(In), In[3].split(), again)";

#[test]
fn cells_that_were_run_again_are_as_if_they_had_not_been() {
    let world = World::new();
    let session = counted(&world);
    let seen = "2 002 [2, ['002']] 8 42 {6: 42} 8 ['x', '+=', '1', 'name', '=', \"f'{x:03}'\"]";
    assert_eq!(session.printed(LOOK), format!("{seen} []"));
    assert_eq!(session.kernel()["undoable"], 5);
    // The last one above had a checkpoint: it calls what somebody has written.
    assert!(session.cell("os._exit(1)").is("restored"));
    session.undo(1);
    // Eight cells had a number by now.
    let again = |session: &Session<'_>| session.printed("print(again)");
    assert_eq!(again(&session), "[2, 3, 4, 5, 6]");
    for code in ["x = -1; os._exit(1)", "import ctypes; del x; ctypes.string_at(0)"] {
        session.cell("x = 1000");
        let killed = session.cell(code);
        assert!(killed.is("restored") && killed.notes().is_empty(), "{killed}");
        assert!(killed.error().1.ends_with("variables are as they were before it"), "{killed}");
        assert_eq!(session.printed("print(x, name, _)"), "1000 002 42");
        session.undo(2);
    }
    assert_eq!(session.printed("print(x, name, row, double(4), _, Out)"), "2 002 [2, ['002']] 8 42 {6: 42}");
    world.assert_sound();
}

/// Each of them can be taken back by itself, and what is left can be again.
#[test]
fn each_of_them_can_be_undone() {
    let world = World::with("", "undo = 20\n");
    let session = Session::new(&world.server);
    session.cell("import os; x = [0]");
    for n in 1..=6 {
        session.cell(&format!("y = {n}"));
    }
    session.cell("x.append(y)");
    session.cell("y = 8");
    assert_eq!(session.kernel()["undoable"], 9);
    session.undo(1);
    assert_eq!(session.printed("print(x, y)"), "[0, 6] 6");
    // That one and the two before it.
    session.undo(3);
    assert_eq!(
        (session.kernel()["undoable"].clone(), session.kernel()["cells"].clone()),
        (json!(6), json!(6))
    );
    assert_eq!(session.cell("x, y").answer["cell"]["outputs"][0]["data"]["text/plain"], "([0], 5)");
    assert!(session.cell("y = -1; os._exit(1)").is("restored"));
    session.undo(3);
    assert_eq!(session.printed("print(x, y)"), "[0] 3");
    assert_eq!(session.post("/undo", &json!({ "cells": 6 })).status, 400);
    session.undo(5);
    assert_eq!(session.printed("print('x' in globals())"), "False");
    world.assert_sound();
}

/// More of them than are put off at once, with kills between.
#[test]
fn many_of_them_come_to_the_right_sum() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"512MiB\"\n");
    let session = Session::new(&world.server);
    session.cell("import os; x = 0");
    for round in 1..=3 {
        for _ in 0..90 {
            session.cell("x += 1");
        }
        assert!(session.cell("x = -1; os._exit(1)").is("restored"));
        let memory = session.cell("hoard = []\nwhile True: hoard.append(bytearray(b'x') * (1 << 20))");
        assert!(memory.is("restored"), "{memory}");
        assert_eq!(session.printed("print(x)"), (round * 90).to_string());
    }
    world.assert_sound();
}

#[test]
fn a_branch_has_what_they_did_and_so_has_a_session_that_stood_still() {
    let world = World::with("", "freeze_after = \"1s\"\nreclaim_after = \"2s\"\n");
    let session = counted(&world);
    let branch = branch(&world.server, &session);
    for (session, step, value) in [(&branch, 10, 12), (&session, 1, 3), (&branch, 10, 22), (&session, 1, 4)] {
        session.cell(&format!("x += {step}"));
        assert!(session.cell("os._exit(1)").is("restored"));
        assert_eq!(session.printed("print(x, name)"), format!("{value} 002"));
        session.undo(1);
    }
    assert_eq!(branch.remove(), 204);
    session.cell("x += 1");
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    session.cell("x += 1");
    assert!(session.cell("os._exit(1)").is("restored"));
    // Its checkpoints are gone after that, and what was to be run again from them.
    wait_until("it can't be undone any more", || session.kernel()["undoable"] == 0);
    session.cell("x += 1");
    assert!(session.cell("os._exit(1)").is("restored"));
    assert_eq!(session.printed("print(x, name, row, double(4))"), "7 002 [2, ['002']] 8");
    world.assert_sound();
}

/// Ends the process in which a session's cells run, from outside, and comes back when it has ended.
fn end_process(world: &World, session: &Session<'_>) {
    let inner =
        session.printed("import ctypes; ctypes.CDLL(None).prctl(15, b'to_be_ended'); print(os.getpid())");
    session.cell("x += 1");
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_it = |pid: &&str| {
        let status = status(pid);
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        status.starts_with("Name:\tto_be_ended\n") && numbers.split_whitespace().last() == Some(&inner)
    };
    let all = host::processes_in_groups_of(world.server.pid());
    // Its copies have its name.
    let pid = all.iter().filter_map(|process| process.split(':').next()).find(is_it).unwrap();
    let number = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    wait_until("it has ended", || {
        let status = status(pid);
        status.is_empty() || status.contains("State:\tZ")
    });
}

/// One that ends while nobody runs anything, also where no cells can be undone.
#[test]
fn a_process_that_dies_between_cells_has_what_they_did() {
    for undo in [0, 5] {
        let world = World::with("", &format!("undo = {undo}\n"));
        let session = Session::new(&world.server);
        session.cell("import os; x = 1");
        session.cell("x += 1");
        end_process(&world, &session);
        let next = session.cell("print(x)");
        assert_eq!((next.stdout(), next.is("restarted")), ("3\n", false), "undo = {undo}: {next}");
        assert!(next.notes().contains("its process had ended"), "{next}");
        world.assert_sound();
    }
}

/// Garbage that has a last word is not found in a cell that would be run again: it would have it twice. Nor is what Python calls for
/// it somebody else's, though the rehearsal of a cell has names of its own.
#[test]
fn nobody_has_a_word_in_them() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os, gc, time, builtins, weakref\nclass Leaves:\n    def __del__(self): open('/tmp/left.txt', 'a').write('left\\n')\ndef said(text):\n    open('/tmp/said.txt', 'a').write(text)");
    session.cell("held = Leaves(); held.itself = held; del held");
    for n in 0..10 {
        session.cell(&format!("lists{n} = [{}]", "[0], ".repeat(350)));
    }
    // A cell that dies would look for it itself.
    session.undo(1);
    assert_eq!(
        session.printed(
            "print(gc.isenabled(), len(lists8)); gc.collect(); print(open('/tmp/left.txt').read().split())"
        ),
        "True 350\n['left']"
    );
    session.cell("gc.disable()");
    session.cell("x = 1");
    assert_eq!(session.printed("print(gc.isenabled()); gc.enable()"), "False");
    session.cell("__builtins__ = dict(vars(builtins), print=said)");
    // As long as a rehearsal may take.
    std::thread::sleep(Duration::from_millis(300));
    session.cell("print('said ')");
    assert!(session.cell("import os; os._exit(1)").is("restored"));
    session.cell("__builtins__ = builtins");
    assert_eq!(session.printed("print(open('/tmp/said.txt').read())"), "said");
    // Those who are called for every copy.
    session.cell("n = 0\ndef count():\n    global n\n    n += 1\nos.register_at_fork(before=count)");
    session.cell("x = n");
    let before = session.printed("print(x)");
    assert!(session.cell("os._exit(1)").is("restored"));
    assert_eq!(session.printed("print(x)"), before);
    world.assert_sound();
}

/// What is printed was seen already; a name for it is not needed twice either.
#[test]
fn nothing_of_it_is_shown_twice() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os; x = 1");
    for _ in 0..3 {
        assert_eq!(session.printed("print('seen', x)"), "seen 1");
        session.cell("x");
    }
    let killed = session.cell("os._exit(1)");
    assert!(killed.is("restored") && !killed.answer.to_string().contains("seen"), "{killed}");
    let next = session.cell("print('next')");
    assert_eq!((next.stdout(), next.stderr()), ("next\n", ""), "{next}");
    world.assert_sound();
}

/// A kernel in which every cell is said to do the same again, whatever it does.
#[test]
fn cells_that_lie_about_it_cost_their_own_session_alone() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"512MiB\"\n");
    let other = Session::new(&world.server);
    other.cell("y = 0");
    let once = "if os.path.exists('ran'):\n    BAD\nopen('ran', 'w').close()";
    for (name, bad) in [
        ("endless", "while True: pass"),
        ("ends", "os._exit(0)"),
        ("fails", "1 / 0"),
        ("takes all", "hoard = []\n    while True: hoard.append(bytearray(b'x') * (1 << 20))"),
        (
            "has children",
            "for _ in range(30):\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n    os._exit(0)",
        ),
        ("is silent", "type(session.line).say = lambda *words, **more: None"),
        ("says too much", "while True: session.line.say(again=4, fine=True, awake=1)"),
        (
            "says the wrong thing",
            "session.line.say(again='x', fine=3); session.line.say(again=-1); session.line.say(again=2**64)",
        ),
    ] {
        let session = Session::new(&world.server);
        session.cell("kept = [1]");
        session.cell(&format!("{KNOWS}\nsession.kernel.repeats.is_sure = lambda *about: True"));
        session.cell("x = 1");
        session.cell(&once.replace("BAD", bad));
        let killed = session.cell_within("py", "os._exit(1)", 5000);
        // Twice as long as one is waited for that lacks a processor: others are at work here.
        assert!(killed.took < Duration::from_secs(130), "{name}: {:?}", killed.took);
        assert!(killed.is("restored"), "{name}: {killed}");
        assert_eq!(other.printed("y += 1; print('on')"), "on");
        let next = session.cell_within("py", "print(kept)", 5000);
        // It told that it was done, and goes on.
        let expected = if name == "says too much" { "" } else { "[1]\n" };
        assert_eq!(next.stdout(), expected, "{name}: {next}");
        assert_eq!(session.post("/restart", &json!({})).status, 204);
        assert!(session.cell("print('kept' in globals())").is("restarted"), "{name}");
        assert_eq!(session.remove(), 204);
    }
    world.assert_sound();
}

/// Variables that somebody else changes between two cells: what is run again would not know of it.
#[test]
fn what_changes_between_cells_is_kept() {
    let world = World::new();
    for (name, code) in [
        ("thread", "import threading\nthreading.Timer(0.3, change).start()"),
        (
            "timer",
            "import signal\nsignal.signal(signal.SIGALRM, change); signal.setitimer(signal.ITIMER_REAL, 0.3);",
        ),
        (
            "child",
            "import signal, subprocess\nsignal.signal(signal.SIGCHLD, change); child = subprocess.Popen(['sleep', '0.3'], stdin=subprocess.DEVNULL)",
        ),
    ] {
        let session = Session::new(&world.server);
        session.cell(&format!(
            "changed = False\ndef change(*about):\n    global changed\n    changed = True\n{code}"
        ));
        wait_until("it has changed", || session.printed("print(changed)") == "True");
        for n in 0..5 {
            session.cell(&format!("v{n} = {n}"));
        }
        let killed = session.cell("import os; os._exit(1)");
        assert!(killed.error().1.ends_with("variables are as they were before it"), "{name}: {killed}");
        assert_eq!(session.printed("print(changed, v0, v4)"), "True 0 4", "{name}");
        session.undo(3);
        assert_eq!(session.printed("print(changed, v0, 'v4' in globals())"), "True 0 False", "{name}");
    }
    world.assert_sound();
}

/// What has an effect when it is let go has it once.
#[test]
fn what_is_let_go_is_let_go_once() {
    let world = World::with("", "freeze_after = \"1s\"\n");
    let session = Session::new(&world.server);
    let leaves = "class Leaves:\n    def __del__(self): open('/tmp/left.txt', 'a').write('left\\n')\n";
    let left = "print(open('/tmp/left.txt').read().split())";
    // The values of a branch's cells are not called what its origin's are.
    session.cell(&format!("x = 1\n{leaves}\nLeaves()"));
    for text in ["'a'", "'b'", "'c'"] {
        session.cell(text);
    }
    let other = branch(&world.server, &session);
    other.cell("x");
    assert!(other.cell("import os; os._exit(1)").is("restored"));
    assert_eq!(
        other.printed("import os; print(os.path.exists('/tmp/left.txt'), sorted(Out))"),
        "False [1, 2, 3, 4, 5]"
    );
    assert_eq!(other.remove(), 204);
    // And what goes while a session stands still has gone for good.
    session.cell("held = Leaves(); held.itself = held");
    session.cell("del held");
    session.cell("x = 2");
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    session.cell("x = 3");
    for _ in 0..2 {
        assert!(session.cell("import os; os._exit(1)").is("restored"));
        assert_eq!(session.printed("print(x)"), "3");
    }
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    assert_eq!(session.printed(left), "['left']");
    // The same if its branch was there in between.
    let other = branch(&world.server, &session);
    session.cell("held = Leaves(); held.itself = held");
    session.cell("del held");
    session.cell("x = 4");
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    other.cell("x = -1");
    session.cell("x += 1");
    assert!(session.cell("import os; os._exit(1)").is("restored"));
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    assert_eq!(session.printed(&format!("print(x); {left}")), "5\n['left', 'left']");
    world.assert_sound();
}

/// A session, and what its variables must be after each of its cells.
struct Modelled<'a> {
    session: Session<'a>,
    states: Vec<(u64, Vec<u64>)>,
    done: Vec<String>,
}

impl Modelled<'_> {
    fn cell(&mut self, code: &str) {
        let (mut x, mut seen) = self.states.last().unwrap().clone();
        match code {
            "x += 1" => x += 1,
            "seen.append(x)" => seen.push(x),
            _ => {}
        }
        let done = self.session.cell(code);
        assert_eq!(done.answer["exit_code"], 0, "{done} after {:?}", self.done);
        self.states.push((x, seen));
        self.done.push(code.to_owned());
    }

    fn die(&mut self) {
        let killed = self.session.cell("import os; x = -1; seen.clear(); os._exit(1)");
        let is_told = killed.error().1.ends_with("variables are as they were before it");
        assert!(killed.is("restored") && is_told, "{killed} after {:?}", self.done);
        self.done.push("die".to_owned());
    }

    fn undo(&mut self, at_most: u64) {
        let undoable = self.session.kernel()["undoable"].as_u64().unwrap();
        // Not the first, which there is no state before.
        let count = at_most.min(undoable).min(self.states.len() as u64 - 1);
        if count > 0 {
            let left = self.session.undo(count)["cells"].as_u64().unwrap();
            self.states.truncate(self.states.len() - usize::try_from(count).unwrap());
            assert_eq!(left, self.states.len() as u64, "after {:?}", self.done);
            self.done.push(format!("undo {count} of {undoable}"));
        }
    }

    fn check(&mut self) {
        let (x, seen) = self.states.last().unwrap().clone();
        let done = self.session.cell("print(x, seen)");
        assert_eq!(done.stdout(), format!("{x} {seen:?}\n"), "{done} after {:?}", self.done);
        self.states.push((x, seen));
        self.done.push("check".to_owned());
    }
}

/// Whatever is done in whichever order, variables are what they should be.
#[test]
fn any_order_comes_to_what_it_should() {
    let world = World::with("", "freeze_after = \"1s\"\n");
    // The same each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let first = Session::new(&world.server);
    first.cell("x, seen = 0, []");
    let mut all = vec![Modelled { session: first, states: vec![(0, Vec::new())], done: Vec::new() }];
    for round in 0..400 {
        let at = usize::try_from(next(all.len() as u64)).unwrap();
        let one = &mut all[at];
        match next(100) {
            0..45 => one.cell("x += 1"),
            45..60 => one.cell("seen.append(x)"),
            60..70 => one.die(),
            70..80 => one.undo(1 + next(5)),
            80..98 => one.check(),
            _ if all.len() < 3 => {
                let one = &all[at];
                let session = branch(&world.server, &one.session);
                all.push(Modelled { session, states: one.states.clone(), done: one.done.clone() });
            }
            _ => {}
        }
        if round % 150 == 149 {
            wait_until("all stand still", || all.iter().all(|one| one.session.kernel()["state"] == "frozen"));
        }
    }
    for one in &mut all {
        one.check();
    }
    assert_eq!(all.len(), 3);
    world.assert_sound();
}
