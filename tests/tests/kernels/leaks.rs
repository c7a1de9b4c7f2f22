//! What one live session can see of another's, and what is left of those that are gone.

use std::path::Path;

use redoma_tests::server::ADMIN;
use redoma_tests::wait_until;
use redoma_tests::{Mode, host};
use serde_json::json;

use crate::World;
use crate::session::Session;

/// Leaves a token everywhere that a process can: `TOKEN` is put in its place.
const HIDE: &str = r"
import ctypes, mmap, os, socket, subprocess, threading
token = 'TOKEN'
for folder in ('/mnt/data', '/tmp', '/dev/shm', '/home/sandbox'):
    with open(f'{folder}/{token}', 'w') as file: file.write(token)
os.environ['TOKEN_OF_ANA'] = token
os.chmod('/tmp', 0o777)
listener = socket.socket(socket.AF_UNIX); listener.bind('\0' + token); listener.listen()
named = socket.socket(socket.AF_UNIX); named.bind('/tmp/named'); named.listen()
web = socket.socket(); web.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); web.bind(('127.0.0.1', 8888)); web.listen()
def answer(server):
    while True:
        client, _ = server.accept()
        client.send(token.encode()); client.close()
for server in (listener, named, web): threading.Thread(target=answer, args=(server,), daemon=True).start()
libc = ctypes.CDLL(None)
segment = libc.shmget(0x5ec2e7, 4096, 0o1777)
libc.shmat.restype = ctypes.c_void_p
if segment >= 0: ctypes.memmove(libc.shmat(segment, None, 0), token.encode(), len(token))
shared = mmap.mmap(-1, 1 << 20); shared[:len(token)] = token.encode()
hoard = [token.encode() * 100 for _ in range(100)]
child = subprocess.Popen(['sleep', '60', token] if False else ['bash', '-c', f': {token}; sleep 60'], stdin=subprocess.DEVNULL)
print('hidden')
";

/// Looks for tokens everywhere. The pattern is none itself.
const SEEK: &str = r"
import ctypes, glob, os, re, socket
pattern = re.compile(rb'LEAK' + rb'[0-9a-f]{32}')
found = []
def look(where, content):
    if isinstance(content, str): content = content.encode()
    if pattern.search(content): found.append(where)
def read(path):
    try:
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, 'rb') as file: look(path, file.read(1 << 20))
    except (OSError, ValueError): pass
for top in ('/mnt', '/tmp', '/dev', '/home', '/var', '/run', '/etc', '/root', '/.redoma'):
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            look(f'name {folder}', name); read(f'{folder}/{name}')
own = {os.getpid(), 1}
others = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in own]
for pid in [*others, *own]:
    for file in ('cmdline', 'environ', 'comm', 'maps', 'net/unix', 'net/tcp', 'mountinfo', 'cgroup'): read(f'/proc/{pid}/{file}')
    for name in glob.glob(f'/proc/{pid}/root/tmp/*') + glob.glob(f'/proc/{pid}/cwd/*') + glob.glob(f'/proc/{pid}/fd/*'): look(name, name); read(name)
for pid in range(1, 3000):
    for call in (lambda: os.kill(pid, 0), lambda: os.getpgid(pid), lambda: os.pidfd_open(pid)):
        try: call()
        except OSError: pass
abstract = [line.split()[-1] for line in open('/proc/net/unix') if '@' in line] if os.path.exists('/proc/net/unix') else []
for name in abstract: look('abstract', name)
for address in ('/tmp/named', *('\0' + name[1:] for name in abstract), *('\0' + token for token in GUESSES)):
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1); line.connect(address); look(repr(address[:5]), line.recv(100))
    except OSError: pass
try:
    with socket.create_connection(('127.0.0.1', 8888), 1) as line: look('tcp', line.recv(100))
except OSError: pass
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0x5ec2e7, 0, 0)
if segment >= 0: look('shm', ctypes.string_at(libc.shmat(segment, None, 0), 100))
# Its own memory: nothing of another's is in it, whatever both were copied from.
with open('/proc/self/mem', 'rb') as memory:
    for line in open('/proc/self/maps'):
        start, end = (int(n, 16) for n in line.split()[0].split('-'))
        if line.split()[1].startswith('r') and end - start < 1 << 28:
            try:
                memory.seek(start); found += [f'memory {line.split()[-1]}'] if pattern.search(memory.read(end - start)) else []
            except (OSError, ValueError, OverflowError): pass
print(len(others), sorted(set(found)))
";

fn token() -> String {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    format!("LEAK{}", random.trim().replace('-', ""))
}

#[test]
fn a_kernel_sees_nothing_of_anothers() {
    let world = World::new();
    let (ana, ben) = (world.server.key("user", "ana"), world.server.key("user", "ben"));
    let (one, token) = (Session::of(&world.server, &ana), token());
    let guesses = format!("GUESSES = [''.join(map(chr, {:?}))]\n", token.bytes().collect::<Vec<_>>());
    let seek = format!("{}{SEEK}", "GUESSES = []\n");
    // Where the search finds what is there, the test means something.
    assert_eq!(
        one.printed(&HIDE.replace("TOKEN", &token).replace(&format!("{token}_OF_ANA"), "OF_ANA")),
        "hidden"
    );
    let own = one.printed(&seek);
    for place in ["/dev/shm/", "/tmp/", "abstract", "tcp", "memory", "/mnt/data/"] {
        assert!(own.contains(place), "its own is not found in {place}: {own}");
    }
    // Another of the same user, one of somebody else, and one that began before.
    for key in [&ana, &ben] {
        let other = Session::of(&world.server, key);
        assert_eq!(other.printed(&seek), "0 []");
        // With the name of the socket known; it is then in its own memory.
        let found = other.printed(&format!("{guesses}{SEEK}"));
        assert!(!found.contains("x00") && !found.contains("tcp") && !found.contains("shm"), "{found}");
    }
    // Nor when the first is gone: what comes after it gets nothing that it had.
    assert_eq!(one.remove(), 204);
    for _ in 0..6 {
        assert_eq!(Session::of(&world.server, &ben).printed(&seek), "0 []");
    }
    world.assert_sound();
}

/// The checkpoints of a session are its own processes, and still nothing that its code can look into.
#[test]
fn a_kernel_can_not_look_into_its_checkpoints() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os, ctypes; x = 1");
    session.cell("x = 2");
    let seen = session.printed(
        r"
libc = ctypes.CDLL(None, use_errno=True)
seen = []
for pid in range(2, 200):
    if pid == os.getpid(): continue
    try: os.kill(pid, 0)
    except OSError: continue
    for name in ('mem', 'environ', 'fd', 'root', 'maps', 'cwd'):
        try:
            path = f'/proc/{pid}/{name}'
            os.listdir(path) if name in ('fd', 'root', 'cwd') else open(path, 'rb').read(1)
            seen.append(path)
        except OSError: pass
    fd = libc.syscall(434, pid, 0)
    if fd >= 0 and libc.syscall(438, fd, 1, 0) >= 0: seen.append(f'descriptor of {pid}')
    if libc.ptrace(16, pid, 0, 0) == 0: seen.append(f'ptrace {pid}')
print(seen)
",
    );
    assert_eq!(seen, "[]");
    world.assert_sound();
}

#[test]
fn somebody_elses_kernel_is_not_there() {
    let world = World::new();
    let server = &world.server;
    let (ana, ben, app) = (server.key("user", "ana"), server.key("user", "ben"), server.key("client", "app"));
    let session = Session::of(server, &ana);
    let made = session.cell("x = 1; open('a.txt', 'w').write('a')");
    let execution = made.answer["id"].as_str().unwrap();
    let nothing = server.get("/api/v1/sessions/AAAAAAAAAAAAAAAAAAAAA/kernel").key(&ben).send();
    assert_eq!(nothing.status, 404);
    let code = json!({ "language": "py", "code": "x = 2" });
    let routes = [
        server.get(&session.path("/kernel")),
        server.post(&session.path("/interrupt")).json(&json!({})),
        server.post(&session.path("/restart")).json(&json!({})),
        server.post(&session.path("/undo")).json(&json!({ "cells": 1 })),
        server.post(&session.path("/branch")).json(&json!({})),
        server.post(&session.path("/executions")).json(&code),
        server.post(&session.path("/executions")).json(&code).header("Accept", "text/event-stream"),
        server.get(&session.path("/executions/ws")).websocket(),
        server.get(&session.path("/executions")),
        server.get(&format!("/api/v1/executions/{execution}")),
        server.post(&format!("/api/v1/executions/{execution}/cancel")),
        server.get(&session.path("/files")),
        server.get(&session.path("")),
        server.request("DELETE", &session.path("")),
    ];
    for route in routes {
        for key in [&ben, &app, &server.key("client", "another")] {
            let answer = route.clone().key(key).send();
            assert_eq!(answer.status, 404, "{}: {}", String::from_utf8_lossy(&route.bytes()), answer.text());
            if answer.header("content-type") == nothing.header("content-type") && !answer.body.is_empty() {
                assert_eq!(answer.json()["status"], nothing.json()["status"]);
            }
        }
    }
    // Whoever fails to log in is kept waiting: one route is enough.
    assert_eq!(server.get(&session.path("/kernel")).send().status, 401);
    assert_eq!(session.printed("print(x)"), "1", "nothing has happened to it");
    assert_eq!(session.kernel()["cells"], 2);
    // While a cell of it runs, too.
    let mut events = session.stream(&json!({ "language": "py", "code": "print('on', flush=True)\nimport time; time.sleep(1); print('end')" }));
    let id = events.id();
    events.wait_for("on");
    for path in
        [session.path("/interrupt"), session.path("/restart"), format!("/api/v1/executions/{id}/cancel")]
    {
        assert_eq!(server.post(&path).key(&ben).json(&json!({})).send().status, 404, "{path}");
    }
    assert_eq!(events.result().stdout(), "on\nend\n");
    // An admin acts for himself here, as everywhere.
    assert_eq!(server.get(&session.path("/kernel")).key(ADMIN).send().status, 404);
    world.assert_sound();
}

/// The kernel counts what is passed between processes, per user; a plain user's sandboxes are all of one.
#[test]
fn descriptors_on_their_way_in_one_session_do_not_hinder_another() {
    for mode in Mode::available() {
        let world = World::in_mode(mode, "", "", |command| command);
        let (one, greedy) = (Session::new(&world.server), Session::new(&world.server));
        one.cell("import os; x = 1");
        let hoard = "import array, os, socket
zero, kept, count = os.open('/dev/zero', os.O_RDONLY), [], 0
try:
    while count < 20000:
        kept.append(socket.socketpair()); kept[-1][0].setblocking(False)
        try:
            while True:
                kept[-1][0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [zero] * 200))]); count += 200
        except BlockingIOError: pass
except OSError as error: print(error)
print(count > 500)";
        assert!(greedy.printed(hoard).ends_with("True"));
        for round in 2..4 {
            one.cell(&format!("x = {round}"));
            let killed = one.cell("os._exit(1)");
            assert!(killed.is("restored") && killed.notes().is_empty(), "{}: {killed}", mode.name());
            assert_eq!(one.printed("print(x)"), round.to_string(), "{}", mode.name());
        }
        for _ in 0..4 {
            assert_eq!(Session::new(&world.server).printed("print(1)"), "1", "{}", mode.name());
        }
        let program = world
            .server
            .post("/api/v1/executions")
            .key(ADMIN)
            .json(&json!({ "language": "js", "code": "1" }));
        assert_eq!(program.send().status, 200, "{}", mode.name());
        world.assert_sound();
    }
}

/// What the server holds: descriptors, groups, processes, run folders, mounts.
fn held(world: &World) -> [usize; 5] {
    let pid = world.server.pid();
    let count = |path: String| std::fs::read_dir(path).map_or(0, Iterator::count);
    let mounts =
        std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default().lines().count();
    [
        count(format!("/proc/{pid}/fd")),
        host::cgroups_of(pid).len(),
        host::processes_in_groups_of(pid).len(),
        host::run_folders_of(world.home.path(), pid).len(),
        mounts + host::mounts().len(),
    ]
}

#[test]
fn fifty_sessions_leave_nothing_behind() {
    // So that as many wait as before.
    let mut world = World::with("[engine]\npool_floor = 2\npool_ceiling = 2\n", "");
    for _ in 0..3 {
        let session = Session::new(&world.server);
        session.cell("1");
        assert_eq!(session.remove(), 204);
    }
    let settled = |world: &World| {
        let mut last = held(world);
        for _ in 0..40 {
            std::thread::sleep(std::time::Duration::from_millis(250));
            let now = held(world);
            if now == last {
                break;
            }
            last = now;
        }
        last
    };
    let before = settled(&world);
    let mut uids = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let server = &world.server;
                scope.spawn(move || {
                    let one = |number: usize| {
                        let session = Session::new(server);
                        // Every way in which one can end, with something of everything in it.
                        let code = "import os, subprocess, threading, time\nopen('f', 'w').write('f')\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nsubprocess.Popen(['setsid', 'sleep', '60'], stdin=subprocess.DEVNULL)";
                        let uid = session.cell(code).answer["isolation"]["host_uid"].as_u64().unwrap();
                        match number % 5 {
                            0 => drop(session.cell("os._exit(1)")),
                            1 => drop(session.cell_in("bash", "sleep 60 & disown")),
                            2 => drop(session.cell_within("py", "while True: pass", 100)),
                            3 => drop(session.undo(1)),
                            _ => drop(session.post("/restart", &json!({}))),
                        }
                        assert_eq!(session.remove(), 204);
                        uid
                    };
                    (worker..50).step_by(3).map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        uids.extend(workers.into_iter().flat_map(|worker| worker.join().unwrap()));
    });
    let is_more = |now: &[usize; 5]| now.iter().zip(&before).any(|(now, before)| now > before);
    let mut now = held(&world);
    for _ in 0..100 {
        if !is_more(&now) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        now = held(&world);
    }
    assert!(
        !is_more(&now),
        "descriptors, groups, processes, folders, mounts: {before:?} before, {now:?} now"
    );
    let folder = world.home.storage();
    assert_eq!(files_below(&folder), Vec::<String>::new());
    world.assert_sound();
    assert_eq!(world.server.stop(), Some(0));
    let is_root = Mode::available()[0] == Mode::Root;
    wait_until("nothing is left", || host::leftovers(world.server.pid(), None, world.home.path()).is_empty());
    for uid in uids.into_iter().filter(|_| is_root) {
        assert_eq!(host::processes_of_uid(u32::try_from(uid).unwrap()), Vec::<String>::new());
    }
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

/// A server that is killed leaves its kernels to its janitor.
#[test]
fn kernels_end_with_their_server() {
    for is_killed in [true, false] {
        let mut world = World::with("", "freeze_after = \"1s\"\n");
        let sessions: Vec<_> = (0..3).map(|_| Session::new(&world.server).id).collect();
        for id in sessions {
            let session = Session { server: &world.server, key: ADMIN.to_owned(), id };
            session.cell(
                "import subprocess; subprocess.Popen(['setsid', 'sleep', '60'], stdin=subprocess.DEVNULL)",
            );
        }
        // One of them stands still; a process that is stopped can be ended all the same.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        if is_killed {
            world.server.kill();
        } else {
            assert_eq!(world.server.stop(), Some(0));
        }
        let pid = world.server.pid();
        wait_until("nothing is left", || host::leftovers(pid, None, world.home.path()).is_empty());
    }
}
