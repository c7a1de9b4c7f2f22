//! Cells that need no checkpoint of their own. Those that do the same when they are run again (the kernel says so: see
//! `redoma_repeats.py`) are run again, from the checkpoint before them, should their process end or a later cell be undone.

use std::time::Duration;

/// Behind one checkpoint there are at most so many, which took at most so long: all of it is done again by whoever waits for a
/// session that comes back.
const MOST_CELLS: usize = 64;
const MOST_TIME: Duration = Duration::from_millis(50);
/// And their code has at most so many bytes, all of it and each, which comes in one message: it is in the server's memory, and the
/// kernel that says that they can be run again may lie.
const MOST_CODE: usize = 32 << 10;
const LONGEST_CODE: usize = 8 << 10;

/// A cell that can be run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repeatable {
    pub(super) number: u64,
    code: Vec<u8>,
    took: Duration,
}

impl Repeatable {
    /// Unless that would be too much.
    pub(super) fn new(number: u64, code: &[u8], took: Duration) -> Option<Self> {
        (code.len() <= LONGEST_CODE && took <= MOST_TIME).then(|| Self { number, code: code.to_vec(), took })
    }

    /// How the kernel is told to.
    pub(super) fn order(&self) -> Vec<u8> {
        [format!("again {}\n", self.number).as_bytes(), &self.code].concat()
    }
}

/// Those that came right behind a checkpoint, in order.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    cells: Vec<Repeatable>,
}

impl Repeats {
    pub(super) fn count(&self) -> u64 {
        self.cells.len() as u64
    }

    /// One more; whether it fits.
    pub(super) fn add(&mut self, cell: Repeatable) -> bool {
        let took: Duration = self.cells.iter().map(|cell| cell.took).sum();
        let length: usize = self.cells.iter().map(|cell| cell.code.len()).sum();
        let fits = self.cells.len() < MOST_CELLS
            && took + cell.took <= MOST_TIME
            && length + cell.code.len() <= MOST_CODE;
        if fits {
            self.cells.push(cell);
        }
        fits
    }

    /// Only the first so many.
    pub(super) fn keep(&mut self, count: u64) {
        self.cells.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    }

    pub(super) fn into_cells(self) -> Vec<Repeatable> {
        self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(number: u64, took: u64) -> Repeatable {
        Repeatable::new(number, b"x += 1", Duration::from_millis(took)).unwrap()
    }

    #[test]
    fn only_so_many_are_put_off() {
        let mut many = Repeats::default();
        let fitting = (0..1000).take_while(|number| many.add(cell(*number, 0))).count();
        assert_eq!((fitting, many.count()), (MOST_CELLS, MOST_CELLS as u64));

        let mut slow = Repeats::default();
        assert!(slow.add(cell(1, 30)) && !slow.add(cell(2, 30)) && slow.add(cell(2, 20)));
        assert_eq!(slow.count(), 2);

        let mut long = Repeats::default();
        let longest = Repeatable::new(1, &[b' '; LONGEST_CODE], Duration::ZERO).unwrap();
        let fitting = (0..1000).take_while(|_| long.add(longest.clone())).count();
        assert_eq!(fitting, MOST_CODE / LONGEST_CODE);

        assert_eq!(Repeatable::new(1, b"x", Duration::from_millis(51)), None);
        assert_eq!(Repeatable::new(1, &vec![b' '; LONGEST_CODE + 1], Duration::ZERO), None);
    }

    #[test]
    fn the_order_is_a_line_and_the_code() {
        assert_eq!(cell(7, 1).order(), b"again 7\nx += 1");
    }
}
