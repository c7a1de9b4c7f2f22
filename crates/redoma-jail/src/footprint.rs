//! What of a zygote's memory the init of a kernel's sandbox needs. It is a copy of the zygote, and lives as long as the session
//! does: with all that it inherits it would hold some hundred mappings of libraries and the page tables of an interpreter, for
//! a loop of two system calls.

use crate::sys;

/// As many pieces as can be needed; with more, nothing is given back.
const MOST: usize = 48;

/// The pieces to keep, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pieces: [(usize, usize); MOST],
    count: usize,
}

impl Footprint {
    /// Of this process, as it is now; nothing where that can't be told.
    pub(crate) fn of_this_process() -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let on_stack = 0u8;
        let anchors = [
            Self::of_this_process as fn() -> Option<Self> as usize,
            libc::munmap as unsafe extern "C" fn(*mut libc::c_void, usize) -> i32 as usize,
            &raw const on_stack as usize,
            sys::thread_block(),
        ];
        Self::find(&maps, &anchors)
    }

    /// Files with one of these addresses in them are kept whole, with what follows each of their parts without a name (variables
    /// that begin as zeroes), and so is whatever else has one in it, and what the kernel has put there.
    fn find(maps: &str, anchors: &[usize]) -> Option<Self> {
        let parts: Vec<Part<'_>> = maps.lines().filter_map(Part::parse).collect();
        let has_anchor = |part: &Part<'_>| anchors.iter().any(|at| (part.start..part.end).contains(at));
        // Each is somewhere, or this is not how memory looks here.
        if !anchors.iter().all(|at| parts.iter().any(|part| (part.start..part.end).contains(at))) {
            return None;
        }
        let mut footprint = Self { pieces: [(0, 0); MOST], count: 0 };
        let mut before: Option<(&Part<'_>, bool)> = None;
        for part in &parts {
            let is_of_kept_file = part.name.starts_with('/')
                && parts.iter().any(|other| other.name == part.name && has_anchor(other));
            let follows = part.name.is_empty()
                && before.is_some_and(|(other, is_kept)| is_kept && other.end == part.start);
            let is_kept = has_anchor(part)
                || is_of_kept_file
                || follows
                || is_loader(part.name)
                || (part.name.starts_with('[') && part.name != "[heap]");
            before = Some((part, is_kept));
            if is_kept {
                *footprint.pieces.get_mut(footprint.count)? = (part.start, part.end);
                footprint.count += 1;
            }
        }
        Some(footprint)
    }

    /// Gives back everything else. From here on nothing may be allocated, or be looked at that was.
    pub(crate) fn keep_only(&self) {
        // A copy of this on the stack, which is kept: also where that has grown since.
        let Self { pieces, count } = *self;
        let here = &raw const pieces as usize;
        let mut start = FIRST;
        for (from, to) in pieces.into_iter().take(count) {
            let from = if to > here && from > here.saturating_sub(STACK) {
                here.saturating_sub(STACK)
            } else {
                from
            };
            let from = from & !0xfff;
            if from > start {
                sys::unmap(start, from - start);
            }
            start = start.max(to);
        }
    }
}

/// So much of the stack is in use at most, below where this is called.
const STACK: usize = 128 << 10;
/// Where programs may have memory from.
const FIRST: usize = 0x1_0000;

/// Whoever resolves the address of a function that is called for the first time.
fn is_loader(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"))
}

/// A line of `/proc/self/maps`.
struct Part<'a> {
    start: usize,
    end: usize,
    name: &'a str,
}

impl<'a> Part<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
        Some(Self { start: number(start)?, end: number(end)?, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00500000 r-xp 00000000 00:01 1                          /usr/bin/python3
00500000-00510000 rw-p 00100000 00:01 1                          /usr/bin/python3
00510000-00520000 rw-p 00000000 00:00 0 
01000000-02000000 rw-p 00000000 00:00 0                          [heap]
10000000-10100000 rw-p 00000000 00:00 0 
20000000-20010000 r-xp 00000000 00:01 2                          /usr/lib/pandas.so
20010000-20020000 rw-p 00010000 00:01 2                          /usr/lib/pandas.so
30000000-30010000 r-xp 00000000 00:01 3                          /.redoma/zygote.so
30010000-30020000 rw-p 00010000 00:01 3                          /.redoma/zygote.so
30020000-30030000 rw-p 00000000 00:00 0 
30030000-30040000 rw-p 00000000 00:00 0 
40000000-40010000 r-xp 00000000 00:01 4                          /usr/lib/libc.so.6
40010000-40020000 rw-p 00010000 00:01 4                          /usr/lib/libc.so.6
40020000-40030000 rw-p 00000000 00:00 0 
50000000-50010000 rw-p 00000000 00:00 0 
60000000-60010000 r-xp 00000000 00:01 5                          /usr/lib/ld-linux-x86-64.so.2
70000000-70010000 rw-p 00000000 00:00 0                          [stack]
70020000-70021000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn only_what_a_loop_of_system_calls_needs_is_kept() {
        let found = Footprint::find(MAPS, &[0x3000_1000, 0x4000_1000, 0x7000_f000, 0x5000_0100]).unwrap();
        let kept: Vec<_> = found.pieces[..found.count].iter().map(|(start, _)| start >> 16).collect();
        let expected =
            [0x3000, 0x3001, 0x3002, 0x3003, 0x4000, 0x4001, 0x4002, 0x5000, 0x6000, 0x7000, 0x7002];
        assert_eq!(kept, expected);
    }

    #[test]
    fn memory_that_looks_otherwise_is_left_alone() {
        assert_eq!(Footprint::find(MAPS, &[0x3000_1000, 0x9000_0000]), None);
        let many: Vec<_> =
            (0..=MOST).map(|at| format!("{at:x}000-{at:x}fff rw-p 00000000 00:00 0 [a]")).collect();
        assert_eq!(Footprint::find(&many.join("\n"), &[]), None);
        assert!(Footprint::find(&many[1..].join("\n"), &[]).is_some());
        assert!(Footprint::of_this_process().is_some());
    }
}
