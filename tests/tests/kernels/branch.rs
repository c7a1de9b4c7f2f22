//! Two sessions from one state: variables and files as they were, and nothing of what the other does later.

use std::time::{Duration, Instant};

use redoma_tests::host;
use redoma_tests::server::{ADMIN, Server};
use redoma_tests::wait_until;
use serde_json::json;

use crate::World;
use crate::session::Session;

/// A second session from this one's state, which must have its variables.
#[track_caller]
pub fn branch<'a>(server: &'a Server, session: &Session<'_>) -> Session<'a> {
    let (branch, has_variables) = branch_or_not(server, session);
    assert!(has_variables, "it has no variables");
    branch
}

#[track_caller]
fn branch_or_not<'a>(server: &'a Server, session: &Session<'_>) -> (Session<'a>, bool) {
    let answer = session.post("/branch", &json!({}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = answer.json();
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    (Session { server, key: session.key.clone(), id }, made["has_variables"].as_bool().unwrap())
}

#[test]
fn what_one_takes_back_is_not_the_others() {
    let world = World::new();
    let server = &world.server;
    let one = Session::new(server);
    one.cell("import os; x = 1");
    let two = branch(server, &one);
    one.cell("x = 2");
    one.undo(1);
    // No cell of the first in between.
    for (session, value) in [(&two, 3), (&one, 4), (&two, 5)] {
        assert!(session.cell("os._exit(1)").is("restored"));
        let done = session.cell(&format!("x += {value}"));
        assert!(done.went_on() && !done.is("restarted"), "{done}");
    }
    assert_eq!([one.printed("print(x)"), two.printed("print(x)")], ["5", "9"]);
    world.assert_sound();
}

#[test]
fn a_branch_goes_on_from_the_same_variables_and_files() {
    let world = World::new();
    let server = &world.server;
    let one = Session::new(server);
    one.cell("import os, random\nx = [1]\ndef double(n): return n * 2\nrandom.seed(1); random.random()\nopen('a.txt', 'w').write('before'); os.makedirs('deep'); open('deep/b.txt', 'w').write('b')");
    one.cell_in("bash", "A=1; f() { echo f; }");
    let named = one.post("/branch", &json!({ "name": "another way" }));
    assert_eq!(
        (named.status, &named.json()["session"]["name"]),
        (201, &json!("another way")),
        "{}",
        named.text()
    );
    let two = branch(server, &one);
    assert_ne!(one.id, two.id);
    // Each on its own way, in turns.
    for (session, mark) in [(&one, "one"), (&two, "two"), (&one, "one"), (&two, "two")] {
        let done = session.cell(&format!(
            "x.append('{mark}'); open('a.txt', 'a').write(' {mark}'); open('{mark}.txt', 'w').write('{mark}')"
        ));
        assert_eq!(done.answer["exit_code"], 0, "{done}");
        assert!(done.went_on() && !done.is("restarted"), "{done}");
    }
    let look = "print(x, open('a.txt').read(), sorted(os.listdir()), open('deep/b.txt').read(), double(21))";
    assert_eq!(one.printed(look), "[1, 'one', 'one'] before one one ['a.txt', 'deep', 'one.txt'] b 42");
    assert_eq!(two.printed(look), "[1, 'two', 'two'] before two two ['a.txt', 'deep', 'two.txt'] b 42");
    assert_eq!([one.content_of("a.txt"), two.content_of("a.txt")], ["before one one", "before two two"]);
    for (session, other) in [(&one, "two.txt"), (&two, "one.txt")] {
        assert!(!session.files("").iter().any(|file| file["name"] == other));
    }
    assert_eq!(
        one.printed("print(random.random())"),
        two.printed("print(random.random())"),
        "as it would have been"
    );
    one.cell_in("bash", "A=2");
    assert_eq!(two.printed_in("bash", "echo $A; f"), "1\nf");
    // What comes in from outside comes to one of them.
    one.upload("only.txt", b"only");
    assert_eq!(one.printed("print(open('only.txt').read())"), "only");
    assert_eq!(two.printed("print(os.path.exists('only.txt'))"), "False");
    // A branch of a branch.
    let three = branch(server, &two);
    two.cell("x.append('later')");
    assert_eq!(three.printed("print(x)"), "[1, 'two', 'two']");
    world.assert_sound();
}

#[test]
fn what_is_done_to_a_branch_is_not_done_to_the_other() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"256MiB\"\n");
    let server = &world.server;
    let one = Session::new(server);
    one.cell("import os, time; x = 'before'; open('a.txt', 'w').write('before')");
    let two = branch(server, &one);
    two.cell("x = 'two'");
    for code in ["os._exit(1)", "hoard = bytearray(b'x') * (1 << 30)", "import ctypes; ctypes.string_at(0)"] {
        for (session, kept) in [(&two, "two"), (&one, "before")] {
            assert!(session.cell(code).is("restored"), "{code}");
            assert_eq!(session.printed("print(x)"), kept);
        }
    }
    assert!(two.cell_within("py", "x = 3\nwhile True: pass", 300).is("restored"));
    // Undo, in each for itself.
    two.cell("x = 'more'; open('a.txt', 'w').write('two')");
    one.cell("x = 'later'");
    two.undo(1);
    assert_eq!((two.printed("print(x)"), two.content_of("a.txt")), ("two".to_owned(), "before".to_owned()));
    assert_eq!(one.printed("print(x, open('a.txt').read())"), "later before");
    one.undo(2);
    assert_eq!(one.printed("print(x)"), "before");
    // A restart of one.
    assert_eq!(one.post("/restart", &json!({})).status, 204);
    assert_eq!(two.printed("print(x)"), "two");
    let again = one.cell("print('x' in globals(), open('a.txt').read())");
    assert_eq!((again.stdout(), again.is("restarted")), ("False before\n", true), "{again}");
    // And its end.
    let three = branch(server, &two);
    assert_eq!(two.remove(), 204);
    assert_eq!(three.printed("print(x, open('a.txt').read())"), "two before");
    let four = branch(server, &three);
    three.cell("x = 'three'");
    assert_eq!(three.remove(), 204);
    assert_eq!(four.printed("print(x)"), "two");
    world.assert_sound();
}

/// Cells of two branches take turns, whoever asks.
#[test]
fn cells_of_two_branches_can_be_asked_for_at_the_same_time() {
    let world = World::new();
    let server = &world.server;
    let one = Session::new(server);
    one.cell("import time; x = 0");
    let sessions: Vec<_> = (0..3).map(|_| branch(server, &one)).collect();
    std::thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..5 {
                    let done =
                        session.cell(&format!("x += 1; open('n', 'w').write('{number}'); time.sleep(0.02)"));
                    assert!(done.went_on() && done.answer["exit_code"] == 0, "{done}");
                }
            });
        }
    });
    for (number, session) in sessions.iter().enumerate() {
        assert_eq!(session.printed("print(x, open('n').read())"), format!("5 {number}"));
        assert_eq!(session.content_of("n"), number.to_string());
    }
    // One that waits for another's long cell can be cancelled, and so can a client leave.
    let mut long =
        sessions[0].stream(&json!({ "language": "py", "code": "print('on', flush=True); time.sleep(60)" }));
    let id = long.id();
    long.wait_for("on");
    let mut waits = sessions[1].stream(&json!({ "language": "py", "code": "x = 'ran'" }));
    let waiting = waits.id();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(sessions[1].cancel(&waiting), 202);
    while waits.next().is_some() {}
    assert_eq!(sessions[0].cancel(&id), 202);
    assert_eq!(long.result().answer["ending"], "cancelled");
    assert_eq!(sessions[1].printed("print(x)"), "5");
    world.assert_sound();
}

#[test]
fn a_branch_of_a_hundred_megabytes_is_no_copy() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"512MiB\"\nwall = \"60s\"\n");
    let server = &world.server;
    let one = Session::new(server);
    let sum = one.printed(
        "import numpy as np, pandas as pd
df = pd.DataFrame(np.arange(13_000_000, dtype='float64').reshape(-1, 10), columns=list('abcdefghij'))
print(df.memory_usage().sum() > 100e6, df['j'].sum())",
    );
    let memory = |session: &Session<'_>| session.kernel()["memory_bytes"].as_u64().unwrap() >> 20;
    let before = memory(&one);
    let start = Instant::now();
    let branches: Vec<_> = (0..5).map(|_| branch(server, &one)).collect();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    for session in &branches {
        assert_eq!(session.printed("print(True, df['j'].sum())"), sum);
    }
    let after = memory(&one);
    assert!(after < before + 100, "{before} MiB before, {after} MiB after");
    branches[0].cell("df.iloc[:, :5] = 0.0");
    assert_eq!(branches[1].printed("print(df['a'].sum() > 0)"), "True");
    assert_eq!(one.printed("print(True, df['j'].sum())"), sum);
    world.assert_sound();
}

#[test]
fn what_can_not_be_branched_is_said() {
    let world = World::new();
    let server = &world.server;
    // Without variables there are still files.
    let none = Session::new(server);
    none.upload("a.txt", b"a");
    let (two, has_variables) = branch_or_not(server, &none);
    assert!(!has_variables);
    assert_eq!(two.printed("print(open('a.txt').read())"), "a");
    // With an open pipe there is no copy.
    let piped = Session::new(server);
    piped.cell("import subprocess; x = 1\np = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)");
    let answer = piped.post("/branch", &json!({}));
    assert!(matches!(answer.status, 201 | 409), "{}", answer.text());
    if answer.status == 201 {
        assert_eq!(answer.json()["has_variables"], false, "{}", answer.text());
    } else {
        assert!(answer.json()["detail"].as_str().unwrap().contains("pipe"), "{}", answer.text());
    }
    assert_eq!(piped.printed("p.communicate(b'end'); print(x)"), "1", "nothing has happened to it");
    branch(server, &piped);
    // A thread does not come along.
    let threaded = Session::new(server);
    threaded.cell(
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start()",
    );
    let copy = branch(server, &threaded);
    assert_eq!(threaded.printed("print(t.is_alive())"), "True");
    assert_eq!(copy.printed("print(t.is_alive())"), "False");
    // While a cell runs, it is waited for, or refused.
    let busy = Session::new(server);
    busy.cell("x = 1");
    let mut events = busy.stream(
        &json!({ "language": "py", "code": "print('on', flush=True)\nimport time; time.sleep(1); x = 2" }),
    );
    events.wait_for("on");
    let answer = busy.post("/branch", &json!({}));
    assert!(matches!(answer.status, 201 | 409), "{}", answer.text());
    assert!(events.result().went_on());
    assert_eq!(busy.post("/branch", &json!({ "nam": 1 })).status, 400);
    world.assert_sound();
}

/// What both write to it is in the one file that was open; the branch's own copy is as it was stored.
#[test]
fn a_file_that_is_open_stays_the_origins() {
    let world = World::new();
    let server = &world.server;
    let one = Session::new(server);
    one.cell("log = open('log.txt', 'w'); log.write('before '); log.flush()");
    let two = branch(server, &one);
    one.cell("log.write('of one'); log.flush()");
    two.cell("log.write(' and of two'); log.flush()");
    let [first, second] = [&one, &two].map(|session| session.printed("print(open('log.txt').read())"));
    assert_eq!((first.as_str(), second.trim()), ("before of one and of two", "before"));
    world.assert_sound();
}

/// The workspace is each one's own; what else is in the sandbox is there for both, as the documentation says.
#[test]
fn a_branch_shares_the_sandbox_but_not_the_workspace() {
    let world = World::new();
    let server = &world.server;
    let one = Session::new(server);
    one.cell("import glob");
    let two = branch(server, &one);
    let hidden = one.cell(
        "for folder in ('/mnt/data', '/tmp', '/dev/shm', '/home/sandbox'):
    with open(f'{folder}/of_one', 'w') as file: file.write('LATER')",
    );
    assert_eq!(hidden.answer["exit_code"], 0, "{hidden}");
    let seen = two.printed(
        "print(sorted(path for folder in ('/mnt/data', '/tmp', '/dev/shm', '/home/sandbox') for path in glob.glob(folder + '/of_one')))",
    );
    assert_eq!(seen, "['/dev/shm/of_one', '/home/sandbox/of_one', '/tmp/of_one']");
    world.assert_sound();
}

/// Both are in one sandbox, whose processes can signal each other. Nothing hangs, and nobody is told what is not so.
#[test]
fn a_branch_that_kills_everybody_is_found_out() {
    let world = World::new();
    let server = &world.server;
    for signal in [9, 19, 18] {
        let one = Session::new(server);
        one.cell("import os; x = 1");
        let two = branch(server, &one);
        let code = format!(
            "me = os.getpid()\nfor pid in range(2, 500):\n    try:\n        if pid != me: os.kill(pid, {signal})\n    except OSError: pass"
        );
        two.cell_within("py", &code, 5000);
        for session in [&one, &two] {
            let start = Instant::now();
            let answer =
                session.request(&json!({ "language": "py", "code": "print(globals().get('x'))" })).send();
            let text = answer.text();
            let is_told = match answer.status {
                200 => {
                    ["restarted", "lost", "restored"].iter().any(|word| answer.json()["cell"][word] == true)
                }
                _ => answer.json()["code"] == "variables_lost",
            };
            assert!(is_told || answer.json()["stdout"]["text"] == "1\n", "{signal}: {text}");
            assert!(start.elapsed() < Duration::from_secs(25), "{signal}: {:?}", start.elapsed());
            assert_eq!(session.post("/restart", &json!({})).status, 204);
            assert_eq!(session.printed("print(1)"), "1");
            assert_eq!(session.remove(), 204);
        }
    }
    world.assert_sound();
}

#[test]
fn branches_are_frozen_dropped_and_leave_nothing() {
    let mut world = World::with("", "freeze_after = \"1s\"\ndrop_after = \"4s\"\n");
    {
        let server = &world.server;
        let one = Session::new(server);
        one.cell("x = 1; open('a.txt', 'w').write('a')");
        let two = branch(server, &one);
        two.cell("x = 2");
        for session in [&one, &two] {
            wait_until("it stands still", || session.kernel()["state"] == "frozen");
        }
        assert_eq!([one.printed("print(x)"), two.printed("print(x)")], ["1", "2"]);
        // One is used all the time, the other is dropped.
        wait_until("the other is dropped", || {
            assert_eq!(one.printed("print(x)"), "1");
            std::thread::sleep(Duration::from_millis(300));
            two.kernel()["state"] == "none"
        });
        let again = two.cell("print('x' in globals(), open('a.txt').read())");
        assert_eq!((again.stdout(), again.is("restarted")), ("False a\n", true), "{again}");
        assert_eq!(one.printed("print(x)"), "1");
        wait_until("both are dropped", || {
            [&one, &two].iter().all(|session| session.kernel()["state"] == "none")
        });
        let three = branch_or_not(server, &one).0;
        assert_eq!(three.printed("print(open('a.txt').read())"), "a");
        for session in [one, two, three] {
            assert_eq!(session.remove(), 204);
        }
        assert_eq!(server.get("/api/v1/sessions").key(ADMIN).send().json()["sessions"], json!([]));
    }
    world.assert_sound();
    assert_eq!(world.server.stop(), Some(0));
    wait_until("nothing is left", || host::leftovers(world.server.pid(), None, world.home.path()).is_empty());
}
