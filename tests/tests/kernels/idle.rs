//! What becomes of kernels that nobody uses, and of those that are too many.

use std::time::{Duration, Instant};

use redoma_tests::host;
use redoma_tests::server::ADMIN;
use redoma_tests::wait_until;
use serde_json::json;

use crate::World;
use crate::session::Session;

/// CPU time of everything in this server's sandboxes.
fn cpu_time(world: &World) -> Duration {
    let ticks: u64 = host::processes_in_groups_of(world.server.pid())
        .iter()
        .filter_map(|process| {
            let pid = process.split(':').next()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            // Its own, and that of children that it has waited for.
            fields[11..15].iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()
        })
        .sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn a_session_that_nobody_uses_stands_still_and_goes_on_when_asked() {
    let world = World::with("", "freeze_after = \"1s\"\n");
    let spinners = [
        (
            "thread",
            "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()",
        ),
        (
            "process",
            "import subprocess\nsubprocess.Popen(['bash', '-c', 'while :; do :; done'], stdin=subprocess.DEVNULL)",
        ),
        // Each forks another and ends.
        ("chain", "import os\nif os.fork() == 0:\n    while True:\n        if os.fork(): os._exit(0)"),
    ];
    let sessions = spinners.map(|(name, spin)| {
        let session = Session::new(&world.server);
        session.cell(&format!("x = 1\n{spin}"));
        let before = cpu_time(&world);
        let is_at_work = rolls_on(&world) || cpu_time(&world) > before + Duration::from_millis(50);
        assert!(is_at_work, "{name} does nothing");
        (name, session)
    });
    for (_, session) in &sessions {
        wait_until("it stands still", || session.kernel()["state"] == "frozen");
    }
    // Others are made ready meanwhile, for those to come.
    wait_until("nobody comes or goes", || !rolls_on(&world));
    let before = cpu_time(&world);
    std::thread::sleep(Duration::from_millis(1500));
    let used = cpu_time(&world).saturating_sub(before);
    assert!(used < Duration::from_millis(300), "{used:?} while all should stand still");
    for (name, session) in sessions {
        let next = session.cell("x += 1; print(x)");
        assert_eq!((next.stdout(), next.is("restarted")), ("2\n", false), "{name}: {next}");
        assert!(next.took < Duration::from_secs(8), "{name}: {:?}", next.took);
        // It is as safe as before.
        assert!(session.cell("import os; x = 9; os._exit(1)").is("restored"));
        assert_eq!(session.printed("print(x)"), "2");
        assert_eq!(session.remove(), 204);
    }
    // Frozen ones can be undone, restarted, removed.
    let session = Session::new(&world.server);
    session.cell("x = 1");
    session.cell("x = 2");
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    session.undo(1);
    assert_eq!(session.printed("print(x)"), "1");
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    assert_eq!(session.post("/restart", &json!({})).status, 204);
    assert!(session.cell("1").is("restarted"));
    wait_until("it stands still", || session.kernel()["state"] == "frozen");
    assert_eq!(session.remove(), 204);
    world.assert_sound();
}

/// Whether processes in sandboxes come and go: their numbers change.
fn rolls_on(world: &World) -> bool {
    let look = || -> Vec<String> { host::processes_in_groups_of(world.server.pid()) };
    let first = look();
    std::thread::sleep(Duration::from_millis(300));
    look() != first
}

#[test]
fn a_session_that_is_not_used_for_long_keeps_its_files_only() {
    let world = World::with("", "freeze_after = \"1s\"\ndrop_after = \"3s\"\n");
    let session = Session::new(&world.server);
    session.cell("x = 1; open('kept.txt', 'w').write('kept')");
    wait_until("it is dropped", || session.kernel()["state"] == "none");
    let next = session.cell("print('x' in globals(), open('kept.txt').read())");
    assert_eq!((next.stdout(), next.is("restarted")), ("False kept\n", true), "{next}");
    assert!(!session.cell("1").is("restarted"), "said once");
    assert_eq!(session.printed_in("bash", "cat kept.txt"), "kept");
    // A session without cells so far has lost nothing.
    let other = Session::new(&world.server);
    assert!(!other.cell("1").is("restarted"));
    world.assert_sound();
}

#[test]
fn a_server_that_was_restarted_has_all_files_and_says_that_variables_are_gone() {
    let mut world = World::new();
    let id = {
        let session = Session::new(&world.server);
        session.cell("x = 1; open('kept.txt', 'w').write('kept')");
        session.cell("x = 2; open('kept.txt', 'a').write('!')");
        session.id
    };
    for is_asked in [true, false] {
        if is_asked {
            assert_eq!(world.server.stop(), Some(0));
        } else {
            world.server.kill();
        }
        world.server = world.home.serve();
        world.server.wait_until_ready();
        let session = Session { server: &world.server, key: ADMIN.to_owned(), id: id.clone() };
        assert_eq!(session.kernel()["state"], "none");
        assert_eq!(session.post("/undo", &json!({})).status, 400);
        let next = session.cell("print('x' in globals(), open('kept.txt').read()); x = 3");
        assert_eq!((next.stdout(), next.is("restarted")), ("False kept!\n", true), "{next}");
        assert_eq!(session.content_of("kept.txt"), "kept!");
    }
}

#[test]
fn runs_that_were_answered_are_found_by_the_next_server() {
    let mut world = World::new();
    let mut ran = Vec::new();
    let session = world.server.session(ADMIN);
    for round in 0..3 {
        let here = Session { server: &world.server, key: ADMIN.to_owned(), id: session.clone() };
        for number in 0..4 {
            let done = here.cell(&format!("print({round}, {number})"));
            ran.push((done.answer["id"].as_str().unwrap().to_owned(), format!("{round} {number}\n")));
        }
        // As soon as the last one has been answered.
        world.server.kill();
        world.server = world.home.serve();
        world.server.wait_until_ready();
    }
    for (id, printed) in &ran {
        let answer = world.server.get(&format!("/api/v1/executions/{id}")).key(ADMIN).send();
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        assert_eq!(answer.json()["stdout"]["text"], *printed);
    }
    let here = Session { server: &world.server, key: ADMIN.to_owned(), id: session };
    let listed = world.server.get(&here.path("/executions")).key(ADMIN).send().json();
    let listed: Vec<_> =
        listed["executions"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
    let expected: Vec<_> = ran.iter().rev().map(|(id, _)| id.clone()).collect();
    assert_eq!(listed, expected, "each once, newest first");
}

/// How many mappings each init in a sandbox of this server's has, as far as that can be seen.
fn mappings_of_inits(world: &World) -> Vec<usize> {
    let of =
        |pid: u32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    host::processes_in_groups_of(world.server.pid())
        .iter()
        .filter_map(|process| process.split(':').next()?.parse::<u32>().ok())
        .filter(|pid| of(*pid, "comm").trim() == "redoma-init")
        .map(|pid| of(pid, "maps").lines().count())
        .filter(|count| *count > 0)
        .collect()
}

#[test]
fn a_sessions_own_processes_hold_no_more_than_they_need() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("x = 1");
    // Those that only wait, for a session yet to come, still have all that they were copied from. Whoever is not root sees of none
    // what it has mapped.
    wait_until("it has little", || {
        let inits = mappings_of_inits(&world);
        inits.is_empty() || inits.iter().any(|count| *count < 40)
    });
    // And it still does what it is there for.
    assert!(session.cell("import os; os._exit(1)").is("restored"));
    assert_eq!(session.printed("print(x)"), "1");
    world.assert_sound();
}

#[test]
fn the_least_recently_used_kernel_makes_room_for_another() {
    let world = World::with("[engine]\nkernels = 3\n", "");
    let server = &world.server;
    let state = |session: &Session| session.kernel()["state"].as_str().unwrap().to_owned();
    let sessions: Vec<_> = (0..3).map(|_| Session::new(server)).collect();
    for session in &sessions {
        session.cell("x = 1");
    }
    sessions[0].cell("x = 2");
    let fourth = Session::new(server);
    fourth.cell("x = 4");
    assert_eq!(state(&sessions[1]), "none", "it was not used for longest");
    assert_eq!([state(&sessions[0]), state(&sessions[2]), state(&fourth)], ["idle", "idle", "idle"]);
    assert_eq!(sessions[0].printed("print(x)"), "2");
    assert!(sessions[1].cell("1").is("restarted"));
    assert_eq!(state(&sessions[2]), "none");
    world.assert_sound();
}

#[test]
fn a_user_with_many_kernels_does_not_push_out_the_only_one_of_another() {
    let world = World::with("[engine]\nkernels = 3\n", "");
    let (ana, ben) = (world.server.key("user", "ana"), world.server.key("user", "ben"));
    let only = Session::of(&world.server, &ben);
    only.cell("x = 'of ben'");
    let many: Vec<_> = (0..6).map(|_| Session::of(&world.server, &ana)).collect();
    for session in &many {
        session.cell("x = 'of ana'");
    }
    assert_eq!(only.printed("print(x)"), "of ben");
    let live = many.iter().filter(|session| session.kernel()["state"] == "idle").count();
    assert_eq!(live, 2, "ana has what is left");
    // And with all of ana's at work, ben still gets one: or is told to come again, never made to wait for ever.
    let third = Session::of(&world.server, &ben);
    let busy: Vec<_> = many
        .iter()
        .rev()
        .take(2)
        .map(|session| {
            let mut events = session.stream(
                &json!({ "language": "py", "code": "print('on', flush=True)\nimport time; time.sleep(60)" }),
            );
            events.wait_for("on");
            events
        })
        .collect();
    let start = Instant::now();
    let answer = third.request(&json!({ "language": "py", "code": "1" })).send();
    assert!(matches!(answer.status, 200 | 429 | 503), "{}", answer.text());
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(busy);
    world.assert_sound();
}
