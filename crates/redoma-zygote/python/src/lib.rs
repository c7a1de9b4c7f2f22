//! The jail, callable from a Python interpreter: `zygote.py` loads this library with `ctypes` and so works with any
//! version of Python, whose own interface for extensions is not touched.
//!
//! Functions are called with the interpreter's lock held and from its only thread, so that a clone is a whole copy.

use std::ffi::c_int;
use std::sync::Mutex;

use redoma_jail::kernel::{Copied, KernelLine, Looked};
use redoma_jail::nursery::{Hurry, Resumed, Served, Server, send_warm_up};

static SERVER: Mutex<Option<Server>> = Mutex::new(None);

/// In a sandbox's program: what it waits with.
static RESUMED: Mutex<Option<Resumed>> = Mutex::new(None);

/// In a kernel: where it hears what to do.
static LINE: Mutex<Option<KernelLine>> = Mutex::new(None);

/// This process is to end.
const CLOSED: c_int = 0;
/// This is a new process: a sandbox's program, behind all walls.
const PROGRAM: c_int = 1;
/// The same, and somebody waits for it.
const HURRIED_PROGRAM: c_int = 3;
/// This is a new process: another zygote. The buffer holds the modules that it is to import, a line each.
const ZYGOTE: c_int = 2;

/// Reads the nursery's blueprint. 0, or -1 if that can't be done.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_begin() -> c_int {
    let (Ok(server), Ok(mut slot)) = (Server::zygote(), SERVER.lock()) else { return -1 };
    *slot = Some(server);
    0
}

/// Tells the supervisor how warming up went, in JSON. 0, or -1 if that can't be done.
///
/// # Safety
/// `text` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_warm_up(text: *const u8, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    if send_warm_up(text) { 0 } else { -1 }
}

/// Serves requests until this is another process, or nobody is left to serve. One of the constants above, with how many
/// bytes of the buffer are filled in `length`.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes, and `length` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_serve(buffer: *mut u8, capacity: usize, length: *mut usize) -> c_int {
    let Ok(mut slot) = SERVER.lock() else { return CLOSED };
    let Some(server) = slot.as_mut() else { return CLOSED };
    match server.serve() {
        Served::Program(program, hurry) => {
            let Ok(mut slot) = RESUMED.lock() else { return CLOSED };
            *slot = Some(program);
            match hurry {
                Hurry::Yes => HURRIED_PROGRAM,
                Hurry::No => PROGRAM,
            }
        }
        Served::Zygote(imports) => {
            // SAFETY: the caller's promise.
            if unsafe { fill(buffer, capacity, length, imports.join("\n").as_bytes()) } {
                ZYGOTE
            } else {
                CLOSED
            }
        }
        Served::Closed => CLOSED,
    }
}

/// In a sandbox's program: waits for the assignment, which is then in the buffer. 0, or -1 if there is none.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes, and `length` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_wait(buffer: *mut u8, capacity: usize, length: *mut usize) -> c_int {
    let resumed = RESUMED.lock().ok().and_then(|mut slot| slot.take());
    let Some(resumed) = resumed else { return -1 };
    let (assignment, line) = resumed.wait();
    let Ok(mut slot) = LINE.lock() else { return -1 };
    *slot = Some(line);
    // SAFETY: the caller's promise.
    if unsafe { fill(buffer, capacity, length, &assignment) } { 0 } else { -1 }
}

/// In a program that is no kernel: nobody has more to say to it.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_hang_up() {
    if let Ok(mut slot) = LINE.lock() {
        *slot = None;
    }
}

/// In a kernel: what is open now is its own.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_kernel_begin() {
    if let Ok(mut slot) = LINE.lock()
        && let Some(line) = slot.as_mut()
    {
        line.begin();
    }
}

/// In a kernel: waits for the next message, without the interpreter's lock. Its length, 0 at the end, -1 if a signal came first.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_kernel_receive(buffer: *mut u8, capacity: usize) -> isize {
    // SAFETY: the caller's promise.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, capacity) };
    let Ok(mut slot) = LINE.lock() else { return 0 };
    match slot.as_mut().map(|line| line.receive(buffer)) {
        Some(Ok(length)) => isize::try_from(length).unwrap_or(0),
        Some(Err(errno)) if errno.raw_os_error() == EINTR => -1,
        _ => 0,
    }
}

/// In a kernel: whether there is a message already.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_kernel_is_wanted() -> c_int {
    let Ok(slot) = LINE.lock() else { return 0 };
    c_int::from(slot.as_ref().is_some_and(KernelLine::is_wanted))
}

/// In a kernel: 1 if standard output is closed, 2 if standard error is, 4 if this process has children; all that holds, added up.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_kernel_look() -> c_int {
    let Looked { stdout_is_open, stderr_is_open, has_children } = Looked::around();
    c_int::from(!stdout_is_open) + 2 * c_int::from(!stderr_is_open) + 4 * c_int::from(has_children)
}

/// In a kernel: tells the supervisor something. 0, or -1.
///
/// # Safety
/// `text` points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_kernel_say(text: *const u8, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    let Ok(slot) = LINE.lock() else { return -1 };
    match slot.as_ref().map(|line| line.say(text)) {
        Some(Ok(())) => 0,
        _ => -1,
    }
}

/// In a kernel: how many pipes and sockets the code has open, beside these numbers.
///
/// # Safety
/// `known` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redoma_kernel_foreign(known: *const c_int, count: usize) -> c_int {
    // SAFETY: the caller's promise.
    let known = unsafe { std::slice::from_raw_parts(known, count) };
    let Ok(slot) = LINE.lock() else { return 0 };
    let found = slot.as_ref().map_or(0, |line| line.count_foreign(known));
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

/// In a kernel: makes a checkpoint of this number. 0 in the same process, 1 in the checkpoint once it is woken, -1 if there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_kernel_checkpoint(number: u64) -> c_int {
    let Ok(mut slot) = LINE.lock() else { return -1 };
    match slot.as_mut().map(|line| line.checkpoint(number)) {
        Some(Ok(Copied::Original)) => 0,
        Some(Ok(Copied::Woken)) => 1,
        _ => -1,
    }
}

const EINTR: i32 = 4;

/// In a sandbox's program: ends it with this exit code.
#[unsafe(no_mangle)]
pub extern "C" fn redoma_leave(code: u8) -> ! {
    Resumed::leave(code)
}

/// Copies bytes into a caller's buffer, if they fit.
///
/// # Safety
/// `buffer` points to `capacity` writable bytes, and `length` to a number.
unsafe fn fill(buffer: *mut u8, capacity: usize, length: *mut usize, bytes: &[u8]) -> bool {
    if bytes.len() > capacity {
        return false;
    }
    // SAFETY: the caller's promise, and the length was just checked.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len());
        *length = bytes.len();
    }
    true
}
