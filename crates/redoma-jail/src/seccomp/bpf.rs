//! From rules to a classic BPF program.
//!
//! The program first makes sure of the architecture (and, on x86-64, that the call is not of the x32 kind, whose numbers
//! alias others), then finds the call's number by binary search: every call costs some seven comparisons, however long
//! the list. Calls with conditions on arguments get a small block of their own at the end of the search.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel's constants have other widths in libc than in the interface that takes them"
)]

use std::mem::offset_of;

use super::rules::{Condition, Half, Refusal, Rule};

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const MASK: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

const fn verdict(refusal: Refusal) -> u32 {
    match refusal {
        Refusal::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA),
        Refusal::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        Refusal::Ask => libc::SECCOMP_RET_USER_NOTIF,
    }
}

/// Where half of an argument is (both architectures are little-endian).
fn argument_offset(index: u8, half: Half) -> u32 {
    let offset = offset_of!(libc::seccomp_data, args) + usize::from(index) * 8;
    let offset = offset + if half == Half::High { 4 } else { 0 };
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// The whole program.
pub(super) fn assemble(rules: &[Rule]) -> Vec<libc::sock_filter> {
    let mut rules: Vec<&Rule> = rules.iter().collect();
    rules.sort_by_key(|rule| rule.number);
    let mut program = vec![
        statement(LOAD, offset_of!(libc::seccomp_data, arch) as u32),
        branch(JUMP_IF_EQUAL, AUDIT_ARCH, 1, 0),
        statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        statement(LOAD, offset_of!(libc::seccomp_data, nr) as u32),
    ];
    if cfg!(target_arch = "x86_64") {
        const X32_BIT: u32 = 0x4000_0000;
        program.push(branch(JUMP_IF_AT_LEAST, X32_BIT, 0, 1));
        program.push(statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.reserve(1024);
    search(&segments(&rules), &mut program);
    program
}

/// A run of numbers that are all treated alike, from `first` to the next segment's.
struct Segment<'a> {
    first: u32,
    what: What<'a>,
}

#[derive(Clone, Copy)]
enum What<'a> {
    /// One verdict whatever the arguments.
    Always(u32),
    /// One call, whose arguments decide.
    Depends(&'a Rule),
}

/// The whole range of numbers cut into segments. Neighbours with the same verdict are one: the kernel's numbers are
/// dense and mostly allowed, so this makes a few dozen comparisons of some four hundred rules. A short program matters:
/// the kernel translates it anew for every sandbox.
fn segments<'a>(rules: &[&'a Rule]) -> Vec<Segment<'a>> {
    let unknown = What::Always(verdict(Refusal::UNKNOWN));
    let mut segments = vec![Segment { first: 0, what: unknown }];
    let mut add = |first: u32, what: What<'a>| {
        if let Some(last) = segments.last_mut() {
            if last.first == first {
                last.what = what;
                return;
            }
            if let (What::Always(before), What::Always(now)) = (last.what, what)
                && before == now
            {
                return;
            }
        }
        segments.push(Segment { first, what });
    };
    for (index, rule) in rules.iter().enumerate() {
        let what = match (rule.allowed_if.is_empty(), rule.refusal) {
            (true, None) => What::Always(libc::SECCOMP_RET_ALLOW),
            (true, Some(refusal)) => What::Always(verdict(refusal)),
            (false, _) => What::Depends(rule),
        };
        add(rule.number, what);
        if rules.get(index + 1).is_none_or(|next| next.number > rule.number + 1) {
            add(rule.number + 1, unknown);
        }
    }
    segments
}

/// Binary search over the segments.
fn search(segments: &[Segment<'_>], program: &mut Vec<libc::sock_filter>) {
    match segments {
        [] => program.push(statement(RETURN, verdict(Refusal::UNKNOWN))),
        [Segment { what: What::Always(action), .. }] => program.push(statement(RETURN, *action)),
        [Segment { what: What::Depends(rule), .. }] => arguments_decide(rule, program),
        _ => {
            let (low, high) = segments.split_at(segments.len() / 2);
            let (first, here) = (high[0].first, program.len());
            program.push(branch(JUMP_IF_AT_LEAST, first, 0, 0));
            search(low, program);
            let length = program.len() - here - 1;
            // A conditional jump reaches 255 ahead; further needs a long jump behind it.
            if let Ok(near) = u8::try_from(length) {
                program[here].jt = near;
            } else {
                program[here].jf = 1;
                program.insert(here + 1, statement(JUMP, u32::try_from(length).unwrap_or(u32::MAX)));
            }
            search(high, program);
        }
    }
}

/// A call whose arguments decide.
fn arguments_decide(rule: &Rule, program: &mut Vec<libc::sock_filter>) {
    // Alternatives, each a list of conditions that must all hold.
    for alternative in rule.allowed_if {
        let mut failed_jumps = Vec::new();
        for Condition { negated, argument, half, mask, one_of } in *alternative {
            program.push(statement(LOAD, argument_offset(*argument, *half)));
            if *mask != u32::MAX {
                program.push(statement(MASK, *mask));
            }
            // A value that is equal jumps over the rest: past the long jump behind them or, negated, to it.
            for (index, value) in one_of.iter().enumerate() {
                let over_the_rest = u8::try_from(one_of.len() - index).unwrap_or(u8::MAX);
                program.push(branch(JUMP_IF_EQUAL, *value, over_the_rest, 0));
            }
            if *negated {
                program.push(statement(JUMP, 1));
            }
            failed_jumps.push(program.len());
            program.push(statement(JUMP, 0));
        }
        program.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
        for jump in failed_jumps {
            program[jump].k = u32::try_from(program.len() - jump - 1).unwrap_or(u32::MAX);
        }
    }
    program.push(statement(RETURN, verdict(rule.refusal.unwrap_or(Refusal::FORBIDDEN))));
}

#[cfg(test)]
mod tests {
    use super::super::rules::{LEAVING, rules, rules_with_leave};
    use super::*;

    /// What the kernel would do with a call: a small interpreter for the instructions that `assemble` emits.
    fn decide(program: &[libc::sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&number.to_ne_bytes());
        data.extend_from_slice(&arch.to_ne_bytes());
        data.extend_from_slice(&0u64.to_ne_bytes());
        for arg in args {
            data.extend_from_slice(&arg.to_ne_bytes());
        }
        let mut accumulator = 0u32;
        let mut at = 0usize;
        loop {
            let instruction = program[at];
            at += 1;
            match instruction.code {
                LOAD => {
                    let offset = instruction.k as usize;
                    accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
                }
                MASK => accumulator &= instruction.k,
                JUMP => at += instruction.k as usize,
                RETURN => return instruction.k,
                JUMP_IF_EQUAL | JUMP_IF_AT_LEAST => {
                    let holds = if instruction.code == JUMP_IF_EQUAL {
                        accumulator == instruction.k
                    } else {
                        accumulator >= instruction.k
                    };
                    at += usize::from(if holds { instruction.jt } else { instruction.jf });
                }
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    fn decision(number: libc::c_long, args: [u64; 6]) -> u32 {
        decide(&assemble(&rules()), AUDIT_ARCH, u32::try_from(number).unwrap(), args)
    }

    #[test]
    fn only_an_end_that_says_so_is_held() {
        let program = assemble(&rules_with_leave());
        let end = |code: u64| {
            let number = u32::try_from(libc::SYS_exit_group).unwrap();
            decide(&program, AUDIT_ARCH, number, [code, 0, 0, 0, 0, 0])
        };
        assert_eq!(end(0), ALLOW);
        assert_eq!(end(1), ALLOW);
        assert_eq!(end(u64::from(LEAVING)), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(end(u64::from(LEAVING) | 7), libc::SECCOMP_RET_USER_NOTIF);
    }

    const NO_ARGS: [u64; 6] = [0; 6];
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

    #[test]
    fn every_rule_is_found_by_the_search_and_every_other_number_is_unknown() {
        let rules = rules();
        let program = assemble(&rules);
        assert!(program.len() < 800, "{} instructions: translated anew for every sandbox", program.len());
        for number in 0..600u32 {
            let result = decide(&program, AUDIT_ARCH, number, NO_ARGS);
            match rules.iter().find(|rule| rule.number == number) {
                None => assert_eq!(result, verdict(Refusal::UNKNOWN), "call {number}"),
                Some(rule) if rule.allowed_if.is_empty() => {
                    assert_eq!(result, rule.refusal.map_or(ALLOW, verdict), "call {number}");
                }
                Some(_) => {}
            }
        }
    }

    #[test]
    fn another_architecture_and_the_x32_numbers_are_killed() {
        let program = assemble(&rules());
        assert_eq!(decide(&program, 0x4000_0003, 1, NO_ARGS), libc::SECCOMP_RET_KILL_PROCESS);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(decide(&program, AUDIT_ARCH, 0x4000_0001, NO_ARGS), libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn clone_is_allowed_without_namespaces_only() {
        let threads = 0x003d_0f00u64; // what pthread_create asks for
        assert_eq!(decision(libc::SYS_clone, [threads, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(decision(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), ALLOW, "a process");
        assert_ne!(decision(libc::SYS_clone, [0x411, 0, 0, 0, 0, 0]), ALLOW, "one that shares descriptors");
        for namespace in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
        ] {
            let flags = threads | u64::from(namespace as u32);
            assert_ne!(decision(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]), ALLOW, "{namespace:#x}");
        }
    }

    #[test]
    fn sockets_are_local_and_never_raw() {
        let socket = |family: i32, kind: i32, protocol: i32| {
            decision(libc::SYS_socket, [family as u64, kind as u64, protocol as u64, 0, 0, 0])
        };
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, libc::IPPROTO_TCP), ALLOW);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, 0), ALLOW);
        assert_ne!(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP), ALLOW);
        assert_ne!(socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP), ALLOW);
        assert_ne!(socket(libc::AF_INET, libc::SOCK_STREAM, 262), ALLOW);
        for family in (0..64).filter(|family| ![1, 2, 10].contains(family)) {
            assert_ne!(socket(family, libc::SOCK_STREAM, 0), ALLOW, "family {family}");
            assert_ne!(socket(family, libc::SOCK_RAW, 0), ALLOW, "family {family}");
        }
        // The kernel reads 32 bits; a set upper half must not slip another family past the filter.
        assert_ne!(decision(libc::SYS_socket, [0xffff_ffff_0000_0010, 3, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn the_core_limit_can_be_asked_for_but_not_set() {
        let prlimit =
            |pid: u64, resource: u64, new: u64| decision(libc::SYS_prlimit64, [pid, resource, new, 0, 0, 0]);
        assert_eq!(prlimit(0, 7, 0x7fff_0000_1000), ALLOW);
        assert_eq!(prlimit(0, 4, 0), ALLOW);
        assert_ne!(prlimit(0, 4, 0x7fff_0000_1000), ALLOW);
        assert_ne!(
            prlimit(0, 4, 0x7fff_0000_0000),
            ALLOW,
            "a pointer whose low half is zero is still a pointer"
        );
        assert_ne!(prlimit(1, 7, 0x7fff_0000_1000), ALLOW, "another process's");
    }

    #[test]
    fn inits_scheduling_is_out_of_reach_and_ones_own_is_not() {
        for call in [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setattr] {
            assert_eq!(decision(call, [0, 0, 0, 0, 0, 0]), ALLOW);
            assert_eq!(decision(call, [2, 0, 0, 0, 0, 0]), ALLOW);
            assert_ne!(decision(call, [1, 0, 0, 0, 0, 0]), ALLOW);
        }
        let setpriority = |which: u64, who: u64| decision(libc::SYS_setpriority, [which, who, 5, 0, 0, 0]);
        assert_eq!((setpriority(0, 0), setpriority(0, 7), setpriority(1, 0)), (ALLOW, ALLOW, ALLOW));
        assert!(setpriority(0, 1) != ALLOW && setpriority(2, 0) != ALLOW && setpriority(2, 1000) != ALLOW);
    }

    #[test]
    fn socket_options_are_those_of_the_list_on_their_own_level() {
        let set = |level: i32, option: i32| {
            decision(libc::SYS_setsockopt, [3, level as u64, option as u64, 0, 0, 0])
        };
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_REUSEADDR), ALLOW);
        assert_eq!(set(libc::IPPROTO_TCP, libc::TCP_NODELAY), ALLOW);
        assert_eq!(set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), ALLOW);
        for option in
            [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_BPF, libc::SO_LOCK_FILTER, 51, 52, libc::SO_ZEROCOPY]
        {
            assert_eq!(set(libc::SOL_SOCKET, option), verdict(Refusal::Errno(libc::ENOPROTOOPT)), "{option}");
        }
        assert_ne!(set(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP), ALLOW);
        assert_ne!(set(libc::IPPROTO_TCP, libc::TCP_ULP), ALLOW);
        assert_ne!(set(libc::IPPROTO_UDP, 100), ALLOW, "UDP_ENCAP");
        assert_ne!(set(libc::SOL_SOCKET, libc::IPV6_TCLASS), ALLOW, "an option of another level");
        assert_ne!(set(263, libc::SO_REUSEADDR), ALLOW, "a level of PACKET");
    }

    #[test]
    fn memory_can_be_advised_about_but_not_merged() {
        let advise = |advice: i32| decision(libc::SYS_madvise, [0, 4096, advice as u64, 0, 0, 0]);
        assert_eq!((advise(libc::MADV_DONTNEED), advise(libc::MADV_HUGEPAGE)), (ALLOW, ALLOW));
        assert_ne!(advise(libc::MADV_MERGEABLE), ALLOW);
    }

    #[test]
    fn reads_and_writes_have_known_flags_only() {
        for call in [libc::SYS_preadv2, libc::SYS_pwritev2] {
            let with = |flags: u64| decision(call, [3, 0, 1, 0, 0, flags]);
            assert_eq!((with(0), with(libc::RWF_APPEND as u64)), (ALLOW, ALLOW));
            assert!(with(libc::RWF_NOWAIT as u64) != ALLOW && with(0x80) != ALLOW && with(1 << 20) != ALLOW);
        }
    }

    #[test]
    fn terminal_injection_is_refused_and_ordinary_ioctls_are_not() {
        assert_eq!(decision(libc::SYS_ioctl, [0, libc::TCGETS, 0, 0, 0, 0]), ALLOW);
        assert_ne!(decision(libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0]), ALLOW);
        assert_ne!(decision(libc::SYS_ioctl, [0, libc::TIOCSTI | 0xf_0000_0000, 0, 0, 0, 0]), ALLOW);
    }
}
