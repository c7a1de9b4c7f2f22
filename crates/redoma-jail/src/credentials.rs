//! Who the sandbox's processes are to the kernel, and what that lets them do: nothing beyond an ordinary user.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, getrlimit, prlimit, set_dumpable_behavior};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::SANDBOX_ID;
use crate::plan::{Ids, Rlimits};
use crate::sys;

/// Takes on uid and gid 1000 of the user namespace, keeping the namespace's capabilities for the mounts to come.
pub(crate) fn become_sandbox_user(ids: Ids) -> Result<(), Errno> {
    if ids.by_root {
        // Without root the kernel does not allow it; the supplementary groups then stay, and reach nothing here.
        rustix::thread::set_thread_groups(&[])?;
    }
    let (uid, gid) = (rustix::process::Uid::from_raw(SANDBOX_ID), rustix::process::Gid::from_raw(SANDBOX_ID));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    // No uid 0 is mapped, so the kernel's "root leaves, capabilities go" rule does not apply; say it all the same.
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Nothing brings capabilities from here on: neither exec, nor a change of uid. Those that are there stay.
pub(crate) fn gain_none() -> Result<(), Errno> {
    gain_no_privileges()?;
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_keep_capabilities(false)?;
    // Locked, so that no later change of uid can bring capabilities back.
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::INVAL) => break, // one past the last that this kernel knows
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// No capability in any set, and no way to be examined by others.
pub(crate) fn have_none() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// In the attack suite's own build: keeps the namespace's capabilities across exec.
pub(crate) fn keep_all_capabilities() -> Result<(), Errno> {
    keep_capabilities(rustix::thread::capabilities(None)?.permitted)
}

/// Keeps these of the namespace's capabilities across exec, and no others.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> Result<(), Errno> {
    let one_by_one = || (0..64).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in one_by_one().filter(|capability| !kept.contains(*capability)) {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Past the last that this kernel knows; or nothing left to drop any with, which were dropped before then.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_capabilities(None, sets)?;
    for capability in one_by_one().filter(|capability| kept.contains(*capability)) {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Nothing that is executed from here on brings rights along.
pub(crate) fn gain_no_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

/// What a nursery keeps in its own namespace: to make its sandboxes, and to give them their ids.
pub(crate) fn for_nursery() -> CapabilitySet {
    for_zygotes() | CapabilitySet::SYS_ADMIN
}

/// What a zygote keeps of that: only to give ids.
pub(crate) fn for_zygotes() -> CapabilitySet {
    CapabilitySet::SETUID | CapabilitySet::SETGID
}

/// Lets a process be examined by others of its user, as one that has been through exec can be. Of init only in the attack
/// suite's own build.
pub(crate) fn be_dumpable() -> Result<(), Errno> {
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// This process's own wish to be spared, or not, when memory runs out.
pub(crate) fn open_oom_score() -> Result<OwnedFd, Errno> {
    rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// No crash in here starts the host's dump handler (a pipe in `core_pattern`), as it would for any other limit than 1.
pub(crate) fn dump_no_core(process: Option<Pid>) -> Result<(), Errno> {
    lower(process, Resource::Core, 1, 1)
}

/// Sets the limits of a process, of this one if none is named.
pub(crate) fn set_rlimits(process: Option<Pid>, limits: Rlimits) -> Result<(), Errno> {
    let lower = |resource, soft, hard| lower(process, resource, soft, hard);
    dump_no_core(process)?;
    lower(Resource::Fsize, limits.fsize, limits.fsize)?;
    lower(Resource::Nofile, limits.nofile, limits.nofile)?;
    lower(Resource::Memlock, 64 << 10, 64 << 10)?;
    lower(Resource::Msgqueue, 64 << 10, 64 << 10)?;
    lower(Resource::Rtprio, 0, 0)?;
    lower(Resource::Nice, 0, 0)?;
    lower(Resource::Sigpending, 1024, 1024)?;
    // A program that asks for a bigger stack may have it up to here; the first is what glibc expects.
    lower(Resource::Stack, 8 << 20, 64 << 20)?;
    lower(Resource::Cpu, limits.cpu_seconds, limits.cpu_seconds + 1)?;
    match limits.nproc {
        Some(count) => lower(Resource::Nproc, count, count),
        None => Ok(()),
    }
}

/// Sets a limit, or leaves what is there where that is stricter already (a plain user can't raise it).
fn lower(process: Option<Pid>, resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
    prlimit(process, resource, limit).map(drop)
}

/// Does something with files as the sandbox's user: what is made is its own, and what it may not do is refused. Of this thread
/// only.
pub fn as_user<T>(ids: Ids, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    /// Puts things back, whatever happens.
    struct Back((u32, u32));
    impl Drop for Back {
        fn drop(&mut self) {
            sys::set_file_ids(self.0.0, self.0.1);
        }
    }
    if !ids.by_root {
        return work();
    }
    let _back = Back(sys::set_file_ids(ids.host_uid, ids.host_gid));
    // It says nothing if it can't be done: asking again tells who one is.
    if sys::set_file_ids(ids.host_uid, ids.host_gid) != (ids.host_uid, ids.host_gid) {
        return Err(Errno::PERM);
    }
    work()
}
