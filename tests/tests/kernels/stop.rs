//! Cells that somebody stops: by cancelling, by leaving, by a restart, by an interrupt, by the removal of their session.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redoma_tests::wait_until;
use serde_json::json;

use crate::World;
use crate::endings::{BEFORE, LIMITS, LOOK, QUICK};
use crate::session::Session;

#[test]
fn a_cancelled_cell_keeps_what_it_has_if_it_ends_by_itself() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    for (code, keeps) in [
        ("x['later'] = 1; print('on', flush=True)\nimport time; time.sleep(60)", true),
        (
            "x['more'] = 1\nimport signal; signal.signal(2, signal.SIG_IGN); print('on', flush=True)\nwhile True: pass",
            false,
        ),
    ] {
        let start = Instant::now();
        let mut events = session.stream(&json!({ "language": "py", "code": code }));
        let id = events.id();
        events.wait_for("on");
        assert_eq!(session.cancel(&id), 202);
        let done = events.result();
        assert_eq!(done.answer["ending"], "cancelled", "{done}");
        assert_eq!((done.went_on(), done.is("restored")), (keeps, !keeps), "{done}");
        assert!(start.elapsed() < QUICK);
        assert_eq!(session.cancel(&id), 404, "it is over");
    }
    assert_eq!(session.printed(LOOK), "['a', 'later'] 42 2 kept");
    world.assert_sound();
}

#[test]
fn a_cell_whose_client_leaves_before_its_turn_never_runs() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import time");
    let code = "print('on', flush=True); time.sleep(60)";
    let mut first = session.stream(&json!({ "language": "py", "code": code }));
    let id = first.id();
    first.wait_for("on");
    let mut second = TcpStream::connect(world.server.address).unwrap();
    let code = "open('ran.txt', 'w').close()";
    second.write_all(&session.request(&json!({ "language": "py", "code": code })).bytes()).unwrap();
    wait_until("it waits", || session.kernel()["waiting"] == 1);
    drop(second);
    wait_until("it gives up", || session.kernel()["waiting"] == 0);
    assert_eq!(session.cancel(&id), 202);
    assert_eq!(first.result().answer["ending"], "cancelled");
    assert_eq!(session.printed("import os; print(os.path.exists('ran.txt'))"), "False");
    world.assert_sound();
}

#[test]
fn a_cell_ends_with_its_client_and_the_session_goes_on() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell(BEFORE);
    for language in ["py", "bash", "js"] {
        let code = match language {
            "py" => "x['later'] = 1; print('on', flush=True)\nwhile True: pass",
            "bash" => "echo on; sleep 60",
            _ => "console.log('on'); for (;;);",
        };
        let mut events = session.stream(&json!({ "language": language, "code": code }));
        events.wait_for("on");
        assert_eq!(session.kernel()["state"], "busy");
        drop(events);
        wait_until("the cell is over", || session.kernel()["state"] != "busy");
        let next = session.cell("print(sorted(x)[0], double(21))");
        assert_eq!(next.stdout(), "a 42\n", "{next}");
    }
    // The same without a stream.
    let request = session.request(&json!({ "language": "py", "code": "import time; time.sleep(60)" }));
    let mut stream = TcpStream::connect(request.address()).unwrap();
    std::io::Write::write_all(&mut stream, &request.bytes()).unwrap();
    wait_until("it runs", || session.kernel()["state"] == "busy");
    drop(stream);
    wait_until("the cell is over", || session.kernel()["state"] != "busy");
    assert_eq!(session.printed("print(double(21))"), "42");
    world.assert_sound();
}

#[test]
fn a_restart_ends_the_cell_that_runs_and_all_variables() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    session.cell("x = 1; open('kept.txt', 'w').write('kept')");
    for code in [
        "print('on', flush=True)\nimport time; time.sleep(60)",
        "import signal; signal.signal(2, signal.SIG_IGN); print('on', flush=True)\nwhile True: pass",
    ] {
        let mut events = session.stream(&json!({ "language": "py", "code": code }));
        events.wait_for("on");
        let start = Instant::now();
        assert_eq!(session.post("/restart", &json!({})).status, 204);
        assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
        assert_eq!(events.result().answer["ending"], "cancelled");
        let next = session.cell("print('x' in globals(), open('kept.txt').read()); x = 1");
        assert_eq!(next.stdout(), "False kept\n", "{next}");
        assert!(next.is("restarted") && next.answer["cell"]["number"] == 1, "{}", next);
    }
    // Without a cell, and without a kernel.
    for _ in 0..2 {
        assert_eq!(session.post("/restart", &json!({})).status, 204);
    }
    assert_eq!(session.kernel()["state"], "none");
    assert!(session.cell("1").is("restarted"));
    world.assert_sound();
}

/// A session in use can't be removed; one whose kernel is idle can, and its kernel goes with it.
#[test]
fn a_session_is_removed_with_its_kernel_but_not_under_a_cell() {
    let world = World::with("", LIMITS);
    let session = Session::new(&world.server);
    let mut events = session
        .stream(&json!({ "language": "py", "code": "print('on', flush=True)\nimport time; time.sleep(60)" }));
    let id = events.id();
    events.wait_for("on");
    assert_eq!(session.remove(), 409);
    assert_eq!(session.cancel(&id), 202);
    assert_eq!(events.result().answer["ending"], "cancelled");
    wait_until("it can be removed", || session.remove() == 204);
    let answer = session.request(&json!({ "language": "py", "code": "1" })).send();
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert_eq!(world.server.get(&session.path("/kernel")).key(&session.key).send().status, 404);
    world.assert_sound();
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_variables() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("x = 1");
    session.cell_in("bash", "A=1");
    session.cell_in("js", "globalThis.n = 1");
    let mut seen = String::new();
    for (language, code) in [
        ("py", "x = 2; print('on', flush=True)\nimport time; time.sleep(60)"),
        ("py", "x = 2; print('on', flush=True)\nwhile True: pass"),
        ("py", "import asyncio; print('on', flush=True)\nawait asyncio.sleep(60)"),
        ("bash", "echo on; sleep 60"),
        ("js", "console.log('on'); await new Promise(go => setTimeout(go, 60000))"),
    ] {
        let mut events = session.stream(&json!({ "language": language, "code": code }));
        events.wait_for("on");
        let start = Instant::now();
        // The cell may be a moment away from where it can be interrupted.
        assert_eq!(session.post("/interrupt", &json!({})).status, 202);
        let done = events.result();
        assert!(start.elapsed() < Duration::from_secs(8), "{code}: {:?}", start.elapsed());
        assert!(done.went_on(), "{code}: {done}");
        assert_ne!(done.answer["exit_code"], 0, "{code}: {done}");
        if language == "py" {
            assert_eq!(done.error().0, "KeyboardInterrupt", "{done}");
        }
        let _ = writeln!(seen, "{code}: {done}");
    }
    assert_eq!(session.printed("print(x)"), "2");
    let of_bash = session.cell_in("bash", "echo $A");
    assert_eq!(of_bash.stdout(), "1\n", "{of_bash} after {seen}");
    let of_node = session.cell_in("js", "console.log(n)");
    assert_eq!(of_node.stdout(), "1\n", "{of_node} after {seen}");
    // With nothing to interrupt it is nothing, and does not end the next cell.
    for _ in 0..3 {
        assert_eq!(session.post("/interrupt", &json!({})).status, 202);
        assert_eq!(session.printed("print(x)"), "2");
    }
    assert_eq!(Session::new(&world.server).post("/interrupt", &json!({})).status, 202, "without a kernel");
    world.assert_sound();
}

/// Whatever it was doing when it was interrupted, and whoever listened to the signal before. The third cell's script ends as
/// soon as it has printed: without a watchdog that runs for good, Node would have no handler in that moment.
#[test]
fn javascript_prints_on_after_interrupts() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell_in("js", "globalThis.n = 'kept'");
    session.cell_in(
        "js",
        "const f = () => {}; process.on('SIGINT', f); process.off('SIGINT', f); process.once('SIGINT', f)",
    );
    for round in 0..60 {
        let code = [
            "console.log('on'); for (;;);",
            "console.log('on'); for (;;) console.error('x'.repeat(10));",
            "console.log('on'); await new Promise(() => {})",
        ][round.min(35) % 3];
        let mut events = session.stream(&json!({ "language": "js", "code": code }));
        events.wait_for("on");
        assert_eq!(session.post("/interrupt", &json!({})).status, 202);
        let done = events.result();
        assert!(done.went_on(), "{done}");
        let next = session.cell_in("js", &format!("console.log({round}, n); console.error('e{round}')"));
        assert_eq!(
            (next.stdout(), next.stderr()),
            (&*format!("{round} kept\n"), &*format!("e{round}\n")),
            "{code}: {done}, then {next}"
        );
    }
    world.assert_sound();
}

/// Also in the moment in which it starts a program, when bash itself loses an interrupt.
#[test]
fn bash_ends_by_itself_whenever_it_is_cancelled() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell_in("bash", "x=1");
    for _ in 0..40 {
        let mut events = session.stream(&json!({ "language": "bash", "code": "x=2; echo on; sleep 60" }));
        let id = events.id();
        events.wait_for("on");
        assert_eq!(session.cancel(&id), 202);
        let done = events.result();
        assert_eq!(done.answer["ending"], "cancelled", "{done}");
        assert!(done.went_on(), "{done}");
    }
    assert_eq!(session.cell_in("bash", "echo $x").stdout(), "1\n");
    world.assert_sound();
}
