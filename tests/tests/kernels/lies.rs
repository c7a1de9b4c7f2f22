//! Code that speaks in its kernel's name. It can: everything that the kernel knows is in its own memory. All that comes of it
//! is that its own session is told lies; others go on, and the session can be restarted.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::session::Session;
use crate::{World, each_of};

/// `say(words)` writes a frame; `tell(words)` says something to the supervisor beside that, and `line` is where orders come from;
/// `number` is that of this cell.
pub const KNOWS: &str = r"
import array, gc, json, os, socket, sys, threading, time
session = next(thing for thing in gc.get_objects() if type(thing).__name__ == 'Session' and hasattr(thing, 'frames'))
start = session.frames.start
def write(content):
    view = memoryview(content)
    while view: view = view[os.write(1, view):]
def say(words): write(start + (words if isinstance(words, bytes) else json.dumps(words).encode()) + b'\n')
def numbers_of(kind): return [n for n in range(100, 300) if os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}').startswith(kind)]
numbers, [words_pipe] = numbers_of('socket:'), numbers_of('pipe:')
line = socket.socket(fileno=numbers[0])
def tell(words):
    words = words if isinstance(words, bytes) else json.dumps(words).encode()
    os.write(words_pipe, words + b'\n')
def number(): return session.kernel.number
";

struct Lie {
    name: &'static str,
    /// What is told beside the truth, in a cell of at most a few seconds.
    code: &'static str,
}

const FRAMES: &[Lie] = &[
    Lie {
        name: "done, at once",
        code: "say({'done': {'number': number(), 'status': 'ok', 'exit_code': 0}})\ntime.sleep(1)",
    },
    Lie {
        name: "done, and goes on for ever",
        code: "say({'done': {'number': number(), 'status': 'ok'}})\nwhile True: pass",
    },
    Lie {
        name: "done with everything",
        code: "for n in range(-2, 300): say({'done': {'number': n, 'status': 'x' * 1000, 'exit_code': n * 2 ** 20, 'notes': ['n' * 10000] * 100}})",
    },
    Lie {
        name: "done that is none",
        code: "for words in ({'done': None}, {'done': {}}, {'done': {'number': 'x'}}, {'done': [1]}, [], 1, 'x', {}, {'nothing': 1}): say(words)",
    },
    Lie {
        name: "garbage",
        code: "for words in (b'', b'{', b'\\xff\\xfe', b'[' * 100000, b'{\"display\":' * 10000, b'null', b'1e999'): say(words)",
    },
    Lie {
        name: "a frame without an end",
        code: "write(start + b'{')\nfor _ in range(16): write(b'x' * (1 << 20))",
    },
    Lie { name: "half a frame at the end", code: "os.write(1, start + b'{\"display\": ')" },
    Lie {
        name: "many small ones",
        code: "for _ in range(20): write((start + b'{\"clear\": {}}\\n') * 5000)",
    },
    Lie {
        name: "large ones",
        code: "words = start + json.dumps({'display': {'data': {'text/plain': 'x' * (11 << 20)}}}).encode() + b'\\n'\nfor _ in range(6): write(words)",
    },
    Lie {
        name: "deep ones",
        code: "value = 'x'\nfor _ in range(100): value = [value]\nfor _ in range(50): say({'display': {'data': {'application/json': value}}})",
    },
    Lie {
        name: "many names",
        code: "for _ in range(20): say({'display': {'data': {f'text/{n}': '' for n in range(50000)}}})",
    },
    Lie {
        name: "errors",
        code: "for _ in range(15): say({'error': {'name': 'x' * 100000, 'value': '', 'traceback': ['t'] * 10000}})",
    },
    Lie {
        name: "calls of tools",
        code: "for n in range(1000): say({'tool': {'id': n, 'name': 'x', 'arguments': {}}}); say({'call': {'id': str(n), 'name': 'x', 'input': {}}}); say({'value': 1})",
    },
];

const WORDS: &[Lie] = &[
    Lie {
        name: "garbage",
        code: "for words in (b'{', b'\\xff' * 4096, b'[' * 4096, b'null', b'x' * 60000, b'\\n' * 1000, b'{\"checkpoint\":1e999}'): tell(words)",
    },
    Lie {
        name: "awake",
        code: "for n in (0, 1, -1, 2 ** 64, 'x', None): tell({'awake': n}); tell({'tidied': True}); tell({'none': n}); tell({'again': n, 'fine': True})",
    },
    Lie {
        name: "checkpoints by itself",
        code: "for n in range(50):\n    for pid in (os.getpid(), 1, 0, -1, n, 2 ** 31 - 1): tell({'checkpoint': n, 'pid': pid})",
    },
    Lie {
        name: "checkpoints of children that do not answer",
        code: "for n in range(10):
    if os.fork() == 0:
        tell({'checkpoint': n, 'pid': os.getpid()}); time.sleep(60); os._exit(0)
time.sleep(0.2)",
    },
    Lie { name: "closes the line", code: "os.close(numbers[0])" },
    Lie { name: "closes the pipe", code: "os.close(words_pipe)" },
    Lie {
        name: "another in its place",
        code: "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); os.dup2(a.fileno(), numbers[0]); keep = (a, b)",
    },
    Lie {
        name: "reads what is for the kernel",
        code: "threading.Thread(target=lambda: [os.read(numbers[0], 4096) for _ in range(1000)], daemon=True).start()",
    },
    Lie { name: "does not make checkpoints", code: "type(session).checkpoint = lambda self, number: None" },
    Lie {
        name: "says there is none",
        code: "type(session).checkpoint = lambda self, number: self.line.say(none=number, foreign=0)",
    },
    Lie {
        name: "says something on the line",
        code: "zero = os.open('/dev/zero', os.O_RDONLY)
for fds in ([], [zero], [zero] * 200):
    try: line.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [])
    except BrokenPipeError: pass
    else: say({'display': {'data': {'text/plain': 'it was sent'}}})",
    },
    Lie {
        name: "a flood",
        code: "type(session).checkpoint = lambda self, number: None
def flood():
    while True:
        try: tell({})
        except OSError: pass
for _ in range(6):
    if os.fork() == 0: flood()",
    },
    Lie {
        name: "a flood without an end",
        code: "type(session).checkpoint = lambda self, number: None
def flood():
    while True:
        try: os.write(words_pipe, b'x' * 4096)
        except OSError: pass
for _ in range(6):
    if os.fork() == 0: flood()",
    },
];

/// Tells the lie in a session of its own, while another goes on; then the session must be one again.
fn told(world: &World, lie: &Lie, other: &Session<'_>) {
    let session = Session::new(&world.server);
    session.cell("x = 1; open('kept.txt', 'w').write('kept')");
    let first = session
        .run(&json!({ "language": "py", "code": format!("{KNOWS}\n{}", lie.code), "timeout_ms": 4000 }));
    assert!(first.took < Duration::from_secs(30), "{:?}", first.took);
    // It was told: a lie that fails before that proves nothing.
    assert!(
        !["BrokenPipeError", "OSError", "ValueError", "NameError"].contains(&&*first.error().0),
        "{first}"
    );
    assert!(!first.answer.to_string().contains("it was sent"), "{first}");
    // Whatever this one says. It is not waited for longer than a client would.
    let mut next =
        session.stream(&json!({ "language": "py", "code": "print('x' in globals())", "timeout_ms": 2000 }));
    next.id();
    assert_eq!(other.printed("y += 1; print('on')"), "on");
    // The server does not wait until the process answers, which takes up to a minute.
    let asked = Instant::now();
    assert_eq!(session.post("/restart", &json!({})).status, 204);
    assert!(asked.elapsed() < Duration::from_secs(45), "the restart took {:?}", asked.elapsed());
    drop(next);
    let after = session.cell("print('x' in globals(), open('kept.txt').read()); x = 2");
    assert_eq!(after.stdout(), "False kept\n", "{after}");
    assert!(session.cell("import os; os._exit(1)").is("restored"));
    assert_eq!(session.printed("print(x)"), "2");
    assert_eq!(session.remove(), 204);
}

fn tell_all(lies: &[Lie]) {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"512MiB\"\n");
    let other = Session::new(&world.server);
    other.cell("y = 0");
    let descriptors = || world.server.descriptors();
    let before = descriptors();
    // Most of the time they wait.
    each_of(lies, 6, |lie| lie.name.to_owned(), |lie| told(&world, lie, &other));
    assert_eq!(other.printed("print(y)"), lies.len().to_string());
    redoma_tests::wait_until("descriptors are closed", || descriptors() < before + 40);
    world.assert_sound();
}

#[test]
fn forged_frames_harm_only_their_own_session() {
    tell_all(FRAMES);
}

#[test]
fn forged_words_harm_only_their_own_session() {
    tell_all(WORDS);
}

/// What the server reads of a flood is not in the sandbox's CPU limit.
#[test]
fn a_flood_of_words_costs_the_server_no_cpu() {
    let world = World::new();
    for name in ["a flood", "a flood without an end"] {
        let flood = WORDS.iter().find(|lie| lie.name == name).unwrap();
        let session = Session::new(&world.server);
        session.cell("x = 1");
        let before = world.server.cpu_seconds();
        session.cell(&format!("{KNOWS}\n{}", flood.code));
        let next = json!({ "language": "py", "code": "print(x)", "timeout_ms": 4000 });
        let answer = session.request(&next).send();
        assert!([200, 503].contains(&answer.status), "{}", answer.text());
        let used = world.server.cpu_seconds() - before;
        assert!(used < 1.0, "{name}: the server has used {used} s");
        assert_eq!(session.post("/restart", &json!({})).status, 204);
    }
    world.assert_sound();
}

/// A process that says it is a checkpoint is woken as one, and then is the session's kernel. It is still in the sandbox, with
/// the same limits, and what it says is cut to the same size.
#[test]
fn a_forged_checkpoint_is_only_what_it_could_be_anyway() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import os; x = [1]");
    // Instead of a checkpoint, which it was told to make on a line that came with the order.
    let forge = r"
def forged(self, number):
    before = set(numbers)
    if os.fork() == 0:
        mine, = [socket.socket(fileno=n) for n in range(3, 300) if n not in before and os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}').startswith('socket:')]
        tell({'checkpoint': number, 'pid': os.getpid()})
        while True:
            order = mine.recv(65536)
            if order == b'wake': tell({'awake': number}); continue
            if not order: os._exit(0)
            if order.startswith(b'checkpoint '): tell({'none': int(order.split()[1])})
            if order.startswith(b'cell '):
                os.write(1, b'forged\n'); say({'done': {'number': int(order.split()[1]), 'status': 'ok', 'exit_code': 0}})
type(session).checkpoint = forged
";
    session.cell(&format!("{KNOWS}{forge}"));
    let killed = session.cell_within("py", "os._exit(1)", 5000);
    let next = session.cell_within("py", "print('true')", 5000);
    assert!(killed.took + next.took < Duration::from_mins(1));
    assert_eq!((killed.is("restored"), next.stdout()), (true, "forged\n"), "{next}");
    assert_eq!(session.post("/restart", &json!({})).status, 204);
    let after = session.cell("print('x' in globals())");
    assert_eq!((after.stdout(), after.is("restarted")), ("False\n", true), "{after}");
    world.assert_sound();
}
