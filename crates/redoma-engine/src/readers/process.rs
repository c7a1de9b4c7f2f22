//! A reader from the outside. What it says is hostile too, once it has read: bounded, parsed, and believed only as facts about
//! the text that it was given.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use redoma_jail::kernel::first_thread_cpu;
use redoma_policy::facts::{Fact, Language, Why};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::{MAX_CPU, NAME};

/// The most bytes that a reader may say about one text.
const MOST_SAID: usize = 32 << 20;

/// Interval at which the CPU time of a reader that has not answered is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What went wrong.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is not there any more.
    Died,
    /// It is, and took too long or said what makes no sense.
    Unread(Why),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Unread(Why::NotParsed),
            _ => Self::Died,
        }
    }
}

#[derive(Debug)]
pub(super) struct Reader {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    texts: u32,
}

impl Reader {
    pub(super) fn start(program: &Path, patience: Duration) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg0(NAME)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a reader without pipes"));
        };
        rustix::io::ioctl_fionbio(&to, true)?;
        let mut reader = Self { child, to, from, texts: 0 };
        // It says so when it has given up its rights.
        let mut ready = [0u8];
        reader.receive(&mut ready, Instant::now() + patience).map_err(|_| {
            io::Error::other("a process that reads programs could not be started; `redoma doctor` tells what this host offers")
        })?;
        Ok(reader)
    }

    pub(super) fn texts(&self) -> u32 {
        self.texts
    }

    pub(super) fn read(
        &mut self,
        language: Language,
        code: &str,
        patience: Duration,
    ) -> Result<Vec<Fact>, Trouble> {
        self.texts += 1;
        let until = Instant::now() + patience;
        let length = u32::try_from(code.len()).unwrap_or(u32::MAX).to_le_bytes();
        // At once: it would be woken by the first part, only to wait for the second.
        self.send(&[&length[..], &[super::inside::number_of(language)], code.as_bytes()].concat(), until)?;
        let mut length = [0u8; 4];
        self.receive(&mut length, until)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST_SAID {
            return Err(Trouble::Unread(Why::TooDeep));
        }
        let mut said = vec![0u8; length];
        self.receive(&mut said, until)?;
        serde_json::from_slice(&said).map_err(|_| Trouble::Unread(Why::NotParsed))
    }

    /// CPU time that it has used so far.
    fn cpu(&self) -> Option<Duration> {
        first_thread_cpu(Pid::from_raw(self.child.id().try_into().ok()?)?)
    }

    fn send(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.to.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(PollFd::new(&self.to, PollFlags::OUT), until)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
        let mut cpu = None;
        while !bytes.is_empty() {
            while let Err(error) =
                wait(PollFd::new(&self.from, PollFlags::IN), until.min(Instant::now() + LOOK))
            {
                let used = self.cpu().map(|now| now.saturating_sub(*cpu.get_or_insert(now)));
                if error.kind() != io::ErrorKind::TimedOut
                    || Instant::now() >= until
                    || used.is_some_and(|used| used >= MAX_CPU)
                {
                    return Err(error);
                }
            }
            match self.from.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn wait(poll_fd: PollFd<'_>, until: Instant) -> io::Result<()> {
    let mut fds = [poll_fd];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
