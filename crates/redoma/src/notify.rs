//! What systemd is told (`sd_notify(3)`): that the server is ready, that it ends, how it is, and, if it asks (`WatchdogSec=`), that it
//! is alive. Plain datagrams to the socket that `NOTIFY_SOCKET` names; without it nothing happens.
//!
//! The watchdog is told only after a look: tasks must still be run by the runtime that answers requests, and the engine's
//! threads must move. A server that hangs is silent, and systemd starts it anew. Being busy is no reason: nothing here waits
//! behind the work of others.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Debug, Clone)]
pub struct Notifier {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
}

impl Notifier {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let place = std::env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty());
        let connected = place.map(|place| Self::to(place.as_bytes()));
        match connected {
            None => Self { socket: None },
            Some(Ok(notifier)) => notifier,
            Some(Err(error)) => {
                tracing::warn!(%error, "systemd can't be told how the server is (NOTIFY_SOCKET)");
                Self { socket: None }
            }
        }
    }

    /// A path, or an abstract name that begins with `@`.
    fn to(place: &[u8]) -> io::Result<Self> {
        let address = match place {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(place))?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "neither a path nor an abstract name",
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // Nobody here waits for systemd.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some(Arc::new((socket, address))) })
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.0.send_to_addr(text.as_bytes(), &socket.1)
        {
            tracing::warn!(%error, "systemd was not told");
        }
    }

    /// It serves.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its configuration anew; `ready` ends that.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping: what runs may finish");
    }

    /// One line about how it is.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
    }

    fn alive(&self) {
        self.send("WATCHDOG=1");
    }
}

/// How often systemd wants to hear, if it does.
fn watchdog_interval() -> Option<Duration> {
    let is_for_us = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    let micros: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (is_for_us && micros > 0).then(|| Duration::from_micros(micros))
}

/// What is wrong, if anything is.
pub type SelfCheck = Box<dyn Fn(Duration) -> Result<(), String> + Send>;

/// Tells systemd that the server is alive, as long as it is. Ends when dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Nothing where nobody asked for one. `check` is given how long it may take.
    pub fn start(notifier: Notifier, check: SelfCheck) -> io::Result<Option<Self>> {
        match watchdog_interval() {
            Some(interval) => Self::every(interval, notifier, check).map(Some),
            None => Ok(None),
        }
    }

    fn every(interval: Duration, notifier: Notifier, check: SelfCheck) -> io::Result<Self> {
        let (stop, stopped) = channel();
        // Three times in the interval: one that comes late is no end.
        let pause = interval / 3;
        let work = move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                match check(pause) {
                    Ok(()) => notifier.alive(),
                    Err(error) => {
                        tracing::error!(%error, "the server does not work as it should; systemd will start it anew");
                        notifier.status(&format!("does not work: {error}"));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(work)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the runtime still runs tasks.
pub fn runs_tasks(runtime: &tokio::runtime::Handle, within: Duration) -> Result<(), String> {
    let (done, is_done) = channel();
    runtime.spawn(async move {
        // Through the queue once more, and the timers.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let _ = done.send(());
    });
    is_done.recv_timeout(within).map_err(|_| format!("no task was run within {} ms", within.as_millis()))
}

/// Lowers how willingly the kernel ends this process when memory runs out. Sandboxes take a score of their own, the highest.
pub fn be_spared() {
    // Without the right to (a plain user), the sandboxes' own score has to do.
    let _ = std::fs::write("/proc/self/oom_score_adj", SPARED);
}

/// Not -1000: a server that itself takes all memory must be ended.
const SPARED: &str = "-500";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn listener(place: &str) -> UnixDatagram {
        let socket = match place.strip_prefix('@') {
            Some(name) => UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap(),
            None => UnixDatagram::bind(place).unwrap(),
        };
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn both_kinds_of_sockets_hear_what_there_is_to_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        for place in [path, format!("@redoma-notify-test-{}", std::process::id())] {
            let socket = listener(&place);
            let notifier = Notifier::to(place.as_bytes()).unwrap();
            notifier.ready("serving");
            assert_eq!(heard(&socket).unwrap(), "READY=1\nSTATUS=serving");
            notifier.reloading();
            assert!(heard(&socket).unwrap().starts_with("RELOADING=1\nMONOTONIC_USEC="));
            notifier.stopping();
            assert!(heard(&socket).unwrap().starts_with("STOPPING=1\n"));
        }
        assert!(Notifier::to(b"vsock:2:1234").is_err());
    }

    #[test]
    fn nobody_who_listens_is_no_trouble() {
        let notifier = Notifier { socket: None };
        notifier.ready("serving");
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone").display().to_string();
        Notifier::to(gone.as_bytes()).unwrap().ready("serving");
    }

    #[test]
    fn the_watchdog_is_silent_while_the_server_does_not_work() {
        let place = format!("@redoma-watchdog-test-{}", std::process::id());
        let socket = listener(&place);
        let works = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&works);
        let check = move |_| if seen.load(Ordering::Relaxed) { Ok(()) } else { Err("it hangs".to_owned()) };
        let notifier = Notifier::to(place.as_bytes()).unwrap();
        let watchdog = Watchdog::every(Duration::from_millis(60), notifier, Box::new(check)).unwrap();
        assert_eq!(heard(&socket).unwrap(), "WATCHDOG=1");
        works.store(false, Ordering::Relaxed);
        let said: Vec<_> = (0..6).filter_map(|_| heard(&socket)).collect();
        assert!(said[2..].iter().all(|text| text == "STATUS=does not work: it hangs"), "{said:?}");
        works.store(true, Ordering::Relaxed);
        assert!((0..6).any(|_| heard(&socket).unwrap() == "WATCHDOG=1"));
        drop(watchdog);
    }

    #[test]
    fn a_runtime_that_is_blocked_is_noticed() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        assert_eq!(runs_tasks(runtime.handle(), Duration::from_secs(5)), Ok(()));
        let (go_on, told) = channel::<()>();
        // Somebody who waits where nobody should.
        runtime.spawn(async move {
            let _ = told.recv();
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(runs_tasks(runtime.handle(), Duration::from_millis(200)).is_err());
        drop(go_on);
        assert_eq!(runs_tasks(runtime.handle(), Duration::from_secs(5)), Ok(()));
    }
}
