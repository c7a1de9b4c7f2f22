//! `redoma setup --delegate USER`: root hands a cgroup to a user, who can then run with full limits and no root.
//!
//! Needed on version 1 only, where every controller has its own hierarchy and nobody hands parts of it out. On version
//! 2 systemd does.

use anyhow::{Context, bail};
use redoma_jail::cgroup;

use crate::terminal;

pub fn delegate(user: &str) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can hand out cgroups; run `sudo redoma setup --delegate {user}`");
    }
    let uid = uid_of(user)?;
    let folders = cgroup::delegate(uid).context("can't hand out a cgroup")?;
    if folders.is_empty() {
        terminal::note(
            "this host has cgroup version 2, where systemd hands cgroups to its users: nothing to do. \
             If `redoma doctor` still misses controllers, add them with `systemctl edit user@.service`: \
             [Service] Delegate=cpu memory pids io",
        );
        return Ok(());
    }
    for folder in &folders {
        terminal::done(&format!("{} now belongs to uid {uid}", folder.display()));
    }
    terminal::note("this lasts until the next reboot");
    Ok(())
}

fn uid_of(user: &str) -> anyhow::Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").context("can't read /etc/passwd")?;
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&user))
        .and_then(|fields| fields.get(2)?.parse().ok())
        .with_context(|| format!("there is no user `{user}`"))
}
