//! Every way in which a cell can end badly. Each time the variables from before it are there, the answer says what happened,
//! and the next cell is quick.

use std::time::Duration;

use redoma_tests::server::Server;

use crate::session::{Done, Session};
use crate::{World, each};

/// Small, so that limits are soon reached.
pub const LIMITS: &str = "[profiles.default.limits]\nmemory = \"256MiB\"\ndisk = \"16MiB\"\npids = 48\nwall = \"20s\"\nnofile = 256\n";
/// Maximum time of a cell that does nothing, on a busy machine. Less than the wall limit.
pub const QUICK: Duration = Duration::from_secs(15);

pub const BEFORE: &str = "
import math, os
x = {'a': 1}
def double(n):
    return n * 2
file = open('/tmp/kept', 'w+')
file.write('kept'); file.flush()
";
pub const LOOK: &str = "file.seek(0)\nprint(sorted(x), double(21), math.floor(2.5), file.read())";

/// What becomes of the process that the cell runs in.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// It is gone, and the one that goes on knows nothing of the cell. So the answer says: `wall`, `SIGSEGV`, `exit code 3`.
    Restored(&'static str),
    /// It goes on with what the cell has done, which ended by itself.
    GoesOn,
    /// One of the two; it depends on what the kernel's memory killer picks, and the like.
    Either,
}
use Fate::{Either, GoesOn, Restored};

struct Ending {
    name: &'static str,
    language: &'static str,
    code: &'static str,
    timeout_ms: u64,
    fate: Fate,
}

const fn python(name: &'static str, fate: Fate, timeout_ms: u64, code: &'static str) -> Ending {
    Ending { name, language: "py", code, timeout_ms, fate }
}

const SOON: u64 = 400;
const LATE: u64 = 15_000;

const TIMEOUTS: &[Ending] = &[
    python("busy loop", Restored("wall"), SOON, "while True: pass"),
    python("sleep", Restored("wall"), SOON, "import time; time.sleep(60)"),
    python(
        "ignores signals",
        Restored("wall"),
        SOON,
        "import signal\nfor n in (1, 2, 3, 14, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
    ),
    python(
        "blocks signals",
        Restored("wall"),
        SOON,
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
    ),
    python("in C without the GIL", Restored("wall"), SOON, "import ctypes; ctypes.CDLL(None).sleep(60)"),
    python("in C with the GIL", Restored("wall"), SOON, "import ctypes; ctypes.PyDLL(None).sleep(60)"),
    python(
        "computes in C",
        Restored("wall"),
        SOON,
        "import hashlib; hashlib.pbkdf2_hmac('sha256', b'x', b'y', 10 ** 9)",
    ),
    python(
        "catches everything",
        Restored("wall"),
        SOON,
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    python("stops itself", Restored("wall"), SOON, "os.kill(os.getpid(), 19)"),
    python(
        "stops everybody",
        Restored("wall"),
        SOON,
        "me = os.getpid()\nfor pid in [n for n in range(2, 500) if n != me] + [me]:\n    try: os.kill(pid, 19)\n    except OSError: pass",
    ),
    python(
        "a child holds the output",
        Restored("wall"),
        SOON,
        "import subprocess; subprocess.run(['sleep', '60'])",
    ),
    Ending {
        name: "bash loop",
        language: "bash",
        code: "while :; do :; done",
        timeout_ms: SOON,
        fate: Restored("wall"),
    },
    Ending {
        name: "bash sleep",
        language: "bash",
        code: "trap '' INT TERM; sleep 60",
        timeout_ms: SOON,
        fate: Restored("wall"),
    },
    Ending {
        name: "js loop",
        language: "js",
        code: "for (;;);",
        timeout_ms: 3 * SOON,
        fate: Restored("wall"),
    },
    Ending {
        name: "js promise",
        language: "js",
        code: "await new Promise(() => setInterval(() => {}, 1000))",
        timeout_ms: 3 * SOON,
        fate: Restored("wall"),
    },
];

const CRASHES: &[Ending] = &[
    python("segfault", Restored("SIGSEGV"), LATE, "import ctypes; ctypes.string_at(0)"),
    python("_exit", Restored("exit code 3"), LATE, "os._exit(3)"),
    python("_exit with 0", Restored("exit code 0"), LATE, "os._exit(0)"),
    python("abort", Restored("SIGABRT"), LATE, "os.abort()"),
    python("kills itself", Restored("SIGKILL"), LATE, "os.kill(os.getpid(), 9)"),
    python("kills its group", Restored("SIGKILL"), LATE, "os.killpg(0, 9)"),
    python("terminates itself", Restored("SIGTERM"), LATE, "os.kill(os.getpid(), 15)"),
    python("becomes another program", Restored("exit code 0"), LATE, "os.execv('/bin/true', ['true'])"),
    python(
        "deep recursion in C",
        Restored("SIGSEGV"),
        LATE,
        "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
    ),
    python("recursion", GoesOn, LATE, "def deeper(): deeper()\ndeeper()"),
    python("sys.exit", GoesOn, LATE, "import sys; sys.exit(3)"),
    python("exit", GoesOn, LATE, "exit()"),
    python("raises what is no Exception", GoesOn, LATE, "class Odd(BaseException): pass\nraise Odd"),
    Ending { name: "kill everybody", language: "bash", code: "kill -9 -1", timeout_ms: LATE, fate: GoesOn },
    Ending {
        name: "bash kills itself",
        language: "bash",
        code: "kill -9 $$",
        timeout_ms: LATE,
        fate: GoesOn,
    },
    Ending {
        name: "bash kills its group",
        language: "bash",
        code: "kill -9 0",
        timeout_ms: LATE,
        fate: Either,
    },
    Ending {
        name: "bash kills its parent",
        language: "bash",
        code: "kill -9 $PPID; sleep 5",
        timeout_ms: LATE,
        fate: Restored("SIGKILL"),
    },
    Ending {
        name: "js kills itself",
        language: "js",
        code: "process.kill(process.pid, 'SIGKILL')",
        timeout_ms: LATE,
        fate: GoesOn,
    },
    Ending { name: "js exits", language: "js", code: "process.exit(3)", timeout_ms: LATE, fate: GoesOn },
    Ending { name: "js aborts", language: "js", code: "process.abort()", timeout_ms: LATE, fate: GoesOn },
    Ending {
        name: "js kills its parent",
        language: "js",
        code: "process.kill(process.ppid, 'SIGKILL'); for (;;);",
        timeout_ms: LATE,
        fate: Restored("SIGKILL"),
    },
];

const EXHAUSTION: &[Ending] = &[
    python("one large allocation", Restored("memory"), LATE, "hoard = bytearray(b'x') * (1 << 30)"),
    python(
        "slow growth",
        Restored("memory"),
        LATE,
        "hoard = []\nwhile True: hoard.append(bytearray(b'x') * (1 << 20))",
    ),
    python(
        "a child takes the memory",
        Either,
        LATE,
        "pid = os.fork()
if pid == 0:
    hoard = []
    while True: hoard.append(bytearray(b'x') * (1 << 20))
os.waitpid(pid, 0)",
    ),
    python(
        "a fork bomb that is left alone",
        GoesOn,
        LATE,
        "import mmap, time
count, me = mmap.mmap(-1, 8), os.getpid()
while int.from_bytes(count[:8], 'little') < 2000:
    count[:8] = (int.from_bytes(count[:8], 'little') + 1).to_bytes(8, 'little')
    try:
        os.fork()
    except OSError:
        if os.getpid() == me: break
if os.getpid() != me: time.sleep(60)",
    ),
    python(
        "a fork bomb until its time is over",
        Restored("wall"),
        3 * SOON,
        "import mmap, time
count = mmap.mmap(-1, 8)
while int.from_bytes(count[:8], 'little') < 2000:
    count[:8] = (int.from_bytes(count[:8], 'little') + 1).to_bytes(8, 'little')
    try: os.fork()
    except OSError: pass
time.sleep(60)",
    ),
    python(
        "a thread bomb",
        GoesOn,
        LATE,
        "import threading, time\nfor _ in range(2000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ),
    python(
        "a full disk",
        GoesOn,
        LATE,
        "for folder in ('/mnt/data', '/tmp', '/dev/shm', '/home/sandbox'):
    try:
        for number in range(64):
            with open(f'{folder}/full{number}', 'wb') as filler: filler.write(b'x' * (1 << 20))
    except OSError: pass",
    ),
    python("too many open files", GoesOn, LATE, "files = []\nwhile True: files.append(open('/dev/null'))"),
    python("endless output", Restored("output"), LATE, "while True: print('x' * 1000)"),
    python(
        "endless errors",
        Restored("output"),
        LATE,
        "import sys\nwhile True: print('x' * 1000, file=sys.stderr)",
    ),
    python(
        "an endless line",
        Restored("output"),
        LATE,
        "import sys\nwhile True: sys.stdout.write('x' * 100000)",
    ),
    python(
        "endless pictures",
        Either,
        LATE,
        "for n in range(10000): display({'text/plain': 'x' * 10000}, raw=True)",
    ),
];

const VANDALISM: &[Ending] = &[
    python("closes all", Restored("exit code"), LATE, "os.closerange(0, 4096)"),
    python("closes its output", GoesOn, LATE, "os.close(1); os.close(2); os.close(0)"),
    python("replaces its output", GoesOn, LATE, "import sys\nsys.stdout = sys.stderr = None"),
    python(
        "replaces functions",
        Either,
        LATE,
        "import builtins, json, ctypes
json.dumps = json.loads = ctypes.string_at = os.write = os._exit = os.getpid = os.fork = None
for name in ('len', 'open', 'compile', 'eval', 'type', 'isinstance', 'str', 'getattr', '__import__'):
    setattr(builtins, name, None)",
    ),
    python("forgets its modules", GoesOn, LATE, "import sys\nsys.modules.clear()"),
    python(
        "deletes builtins",
        Either,
        LATE,
        "import builtins\nfor name in dir(builtins):\n    if name not in ('delattr', 'builtins', 'print', 'sorted'): delattr(builtins, name)",
    ),
    python(
        "removes its names",
        GoesOn,
        LATE,
        "for name in list(globals()):\n    if name.startswith('_'): del globals()[name]",
    ),
    python(
        "leaves its folder",
        GoesOn,
        LATE,
        "os.mkdir('/tmp/gone'); os.chdir('/tmp/gone'); os.rmdir('/tmp/gone')",
    ),
    python(
        "lowers its limits",
        Either,
        LATE,
        "import resource\nfor n in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK): resource.setrlimit(n, (0, 0))",
    ),
    python("traces everything", GoesOn, LATE, "import sys\nsys.settrace(lambda *_: 1 / 0)"),
    python(
        "an audit hook that refuses",
        Either,
        LATE,
        "import sys\ndef no(*_): raise RuntimeError('no')\nsys.addaudithook(no)",
    ),
    python(
        "an excepthook that exits",
        GoesOn,
        LATE,
        "import sys\nsys.excepthook = lambda *_: os._exit(9)\n1 / 0",
    ),
    python("at exit", GoesOn, LATE, "import atexit\natexit.register(os.abort)"),
    python(
        "an error whose text crashes",
        Restored("exit code 7"),
        LATE,
        "class Odd(Exception):\n    def __str__(self): os._exit(7)\nraise Odd",
    ),
    python(
        "a value that never ends",
        Restored("wall"),
        SOON,
        "class Odd:\n    def __repr__(self):\n        while True: pass\nOdd()",
    ),
];

impl Ending {
    fn check(&self, server: &Server) {
        let session = Session::new(server);
        assert_eq!(session.cell(BEFORE).answer["exit_code"], 0);
        let mut code = self.code.to_owned();
        if self.language == "py" {
            code = format!("x['later'] = 1\nleaked = 1\n{code}");
        }
        let bad = session.cell_within(self.language, &code, self.timeout_ms);
        self.assert_told(&bad);
        let names = if self.language == "py" && bad.went_on() { "['a', 'later']" } else { "['a']" };
        for _ in 0..2 {
            let next = session.cell(LOOK);
            // A process that reads its orders and follows none is ended at the wall limit, which is 20 s.
            let most = if self.fate == Either { QUICK + Duration::from_secs(20) } else { QUICK };
            assert!(next.took < most, "the next cell took {:?}", next.took);
            if self.fate == Either && next.is("restored") {
                assert_eq!(session.cell(LOOK).stdout(), "['a'] 42 2 kept\n", "{next} after {bad}");
                break;
            }
            if self.fate == Either && next.notes().contains("from a checkpoint") {
                // It could not go on after all.
                assert_eq!(next.stdout(), "['a'] 42 2 kept\n", "{next} after {bad}");
                break;
            }
            assert_eq!(next.stdout(), format!("{names} 42 2 kept\n"), "{} after {}", next, bad);
            assert!(next.went_on() && !next.is("restarted"), "{}", next);
        }
    }

    fn assert_told(&self, bad: &Done) {
        assert!(!bad.is("restarted"), "{}", bad);
        assert!(!bad.is("lost"), "{}", bad);
        let patience = Duration::from_millis(self.timeout_ms) + QUICK;
        assert!(bad.took < patience, "it took {:?}", bad.took);
        match self.fate {
            Restored(said) => {
                let (_, value) = bad.error();
                assert!(bad.is("restored"), "{}", bad);
                assert!(value.contains(said) && value.contains("as they were before it"), "{}", bad);
            }
            GoesOn => assert!(bad.went_on(), "{}", bad),
            Either => {}
        }
    }
}

fn check_all(endings: &[Ending]) {
    let world = World::with("", LIMITS);
    each(endings, |ending| ending.name.to_owned(), |ending| ending.check(&world.server));
    world.assert_sound();
}

#[test]
fn variables_survive_a_cell_whose_time_is_over() {
    check_all(TIMEOUTS);
}

#[test]
fn variables_survive_a_cell_that_ends_its_process() {
    check_all(CRASHES);
}

#[test]
fn variables_survive_a_cell_that_takes_all_there_is() {
    check_all(EXHAUSTION);
}

#[test]
fn variables_survive_a_cell_that_breaks_its_interpreter() {
    check_all(VANDALISM);
}
