//! Numbers with labels. Label values come from configuration and from short lists, never from a request; still each family
//! has room for so many series only, and everything beyond goes to one that is labelled `other`: whoever finds a way to
//! make up values must not be able to fill this process or the one that scrapes it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

/// What a value becomes that has no place of its own.
pub const OTHER: &str = "other";
/// Longer ones are not names.
const LONGEST: usize = 64;
/// Between values in a key. A value that holds it is no name either.
const BETWEEN: u8 = 0x1f;
/// So many labels a family has at most.
const MOST_LABELS: usize = 4;

/// One number of kind `T` for each combination of label values that was seen.
#[derive(Debug)]
pub struct Family<T> {
    labels: &'static [&'static str],
    most: usize,
    make: fn() -> T,
    /// By the values, one after the other.
    series: RwLock<HashMap<Box<[u8]>, T>>,
}

impl<T: Debug> Family<T> {
    pub fn new(labels: &'static [&'static str], most: usize, make: fn() -> T) -> Self {
        assert!(labels.len() <= MOST_LABELS, "a key has no room for more");
        Self { labels, most, make, series: RwLock::default() }
    }

    /// Does something with the number of these label values.
    pub fn with(&self, values: &[&str], work: impl FnOnce(&T)) {
        debug_assert_eq!(values.len(), self.labels.len(), "one value for each label");
        let key = Key::of(values);
        if let Some(number) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(key.bytes()) {
            return work(number);
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let has_room = series.len() < self.most || series.contains_key(key.bytes());
        let key = if has_room { key } else { Key::of(&[OTHER; MOST_LABELS][..self.labels.len()]) };
        work(series.entry(key.bytes().into()).or_insert_with(self.make));
    }

    /// Shows every series with its labels, in an order that stays.
    pub fn each(&self, mut visit: impl FnMut(&[(&str, &str)], &T)) {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<_> = series.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        for (key, number) in sorted {
            let values =
                key.split(|byte| *byte == BETWEEN).map(|value| str::from_utf8(value).unwrap_or(OTHER));
            let labels: Vec<_> = self.labels.iter().copied().zip(values).collect();
            visit(&labels, number);
        }
    }
}

/// Label values put together, without asking for memory: this is on every run's way.
struct Key {
    bytes: [u8; MOST_LABELS * (LONGEST + 1)],
    length: usize,
}

impl Key {
    fn of(values: &[&str]) -> Self {
        let mut key = Self { bytes: [0; MOST_LABELS * (LONGEST + 1)], length: 0 };
        for (index, value) in values.iter().take(MOST_LABELS).enumerate() {
            if index > 0 {
                key.push(&[BETWEEN]);
            }
            let is_name = value.len() <= LONGEST && !value.bytes().any(|byte| byte.is_ascii_control());
            key.push(if is_name { value.as_bytes() } else { OTHER.as_bytes() });
        }
        key
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::super::counter::Counter;
    use super::*;

    fn shown(family: &Family<Counter>) -> Vec<(String, u64)> {
        let mut shown = Vec::new();
        family.each(|labels, counter| shown.push((format!("{labels:?}"), counter.get())));
        shown
    }

    #[test]
    fn what_has_no_room_is_counted_as_other() {
        let family = Family::new(&["a", "b"], 2, Counter::default);
        for value in ["one", "two", "three", "four", "one"] {
            family.with(&[value, "x"], Counter::add_one);
        }
        let expected = [
            (r#"[("a", "one"), ("b", "x")]"#.to_owned(), 2),
            (r#"[("a", "other"), ("b", "other")]"#.to_owned(), 2),
            (r#"[("a", "two"), ("b", "x")]"#.to_owned(), 1),
        ];
        assert_eq!(shown(&family), expected);
    }

    #[test]
    fn what_is_no_name_is_other() {
        let family = Family::new(&["a"], 10, Counter::default);
        for value in ["x\u{1f}y", "line\nbreak", &"x".repeat(65)] {
            family.with(&[value], Counter::add_one);
        }
        let longest = "ü".repeat(32);
        let all = Family::new(&["a", "b", "c", "d"], 10, Counter::default);
        all.with(&[longest.as_str(); 4], Counter::add_one);
        assert!(shown(&all)[0].0.matches(&longest).count() == 4);
        assert_eq!(shown(&family), [(r#"[("a", "other")]"#.to_owned(), 3)]);
    }
}
