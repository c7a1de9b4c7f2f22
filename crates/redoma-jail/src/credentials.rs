//! Who the sandbox's processes are to the kernel, and what that lets them do: nothing beyond an ordinary user.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::SANDBOX_ID;
use crate::plan::{Ids, Rlimits};

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

/// No capability in any set, none to be had again, and no way to be examined by others.
pub(crate) fn give_up_everything() -> Result<(), Errno> {
    set_no_new_privileges()?;
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
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

pub(crate) fn set_no_new_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

/// Raises this process's OOM score to the top, so that init outlives it and can tell what happened.
pub(crate) fn be_first_to_go_when_memory_ends() -> Result<(), Errno> {
    // The change of uid made /proc/self belong to nobody; a dumpable process owns it again. Exec resets this.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())?;
    rustix::io::write(&file, b"1000")?;
    Ok(())
}

pub(crate) fn set_rlimits(limits: Rlimits) -> Result<(), Errno> {
    lower(Resource::Core, 0, 0)?;
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
fn lower(resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
    setrlimit(resource, limit)
}
