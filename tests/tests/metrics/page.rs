//! A page of metrics, read as strictly as its formats are written down: whatever a lenient reader would let pass panics.

use std::collections::{BTreeMap, BTreeSet};

/// One number: its name and labels, in the order of the labels' names.
pub type Series = (String, BTreeMap<String, String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Prometheus,
    OpenMetrics,
}

#[derive(Debug, Default)]
pub struct Page {
    /// Metrics by name, with their kind.
    pub kinds: BTreeMap<String, String>,
    pub series: BTreeMap<Series, f64>,
}

/// The metric that is being read.
struct Current {
    name: String,
    kind: Option<String>,
}

impl Page {
    pub fn read(text: &str, format: Format) -> Self {
        assert!(text.ends_with('\n'), "the last line has an end");
        let mut page = Self::default();
        let mut current: Option<Current> = None;
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line == "# EOF" {
                assert!(format == Format::OpenMetrics && lines.peek().is_none(), "only at the end");
                break;
            }
            assert!(lines.peek().is_some() || format == Format::Prometheus, "there is no # EOF");
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("help has a text");
                assert!(is_name(name) && !help.trim().is_empty(), "{line}");
                assert!(!page.kinds.contains_key(name), "{name} is there twice");
                current = Some(Current { name: name.to_owned(), kind: None });
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type has a kind");
                let metric = current.as_mut().expect("help comes first");
                assert!(metric.name == name && metric.kind.is_none(), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                metric.kind = Some(kind.to_owned());
                page.kinds.insert(name.to_owned(), kind.to_owned());
            } else {
                assert!(!line.starts_with('#') && !line.is_empty(), "a line of no use: `{line}`");
                let metric = current.as_ref().expect("help and type come first");
                let (series, value) = sample(line);
                metric.check(&series.0, format);
                let is_counter = metric.kind.as_deref() == Some("counter");
                assert!(!is_counter || value >= 0.0, "{line}");
                assert!(value.is_finite(), "{line}");
                assert!(page.series.insert(series, value).is_none(), "there twice: {line}");
            }
        }
        page.check_histograms();
        page
    }

    /// Buckets go up, in the order of their bounds, to as many as there are.
    fn check_histograms(&self) {
        for name in self.kinds.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
            let of = |suffix: &str| -> BTreeMap<_, Vec<(f64, f64)>> {
                let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
                for ((series, labels), value) in &self.series {
                    if *series == format!("{name}{suffix}") {
                        let mut labels = labels.clone();
                        let bound = labels.remove("le").map_or(0.0, |bound| bound.parse().expect("a bound"));
                        found.entry(labels).or_default().push((bound, *value));
                    }
                }
                found
            };
            let (buckets, sums, counts) = (of("_bucket"), of("_sum"), of("_count"));
            let labels =
                |map: &BTreeMap<BTreeMap<String, String>, _>| map.keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(labels(&buckets), labels(&counts), "{name}");
            assert_eq!(labels(&sums), labels(&counts), "{name}");
            for (labels, mut buckets) in buckets {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(
                    buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1),
                    "{name} {labels:?}"
                );
                let last = buckets.last().expect("there is one");
                assert_eq!((last.0, last.1), (f64::INFINITY, counts[&labels][0].1), "{name} {labels:?}");
                assert!(sums[&labels][0].1 >= 0.0);
            }
        }
    }

    /// The number of this series, or 0 if it is not there (yet).
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        self.series.get(&(name.to_owned(), labels)).copied().unwrap_or(0.0)
    }

    /// All series of this name, added up.
    pub fn sum(&self, name: &str) -> f64 {
        self.series.iter().filter(|((series, _), _)| series == name).map(|(_, value)| value).sum()
    }

    /// What may never go down.
    pub fn monotone(&self) -> impl Iterator<Item = (&Series, f64)> {
        let suffixes = ["_total", "_bucket", "_count", "_sum"];
        let is_so = move |name: &str| suffixes.iter().any(|suffix| name.ends_with(suffix));
        self.series.iter().filter(move |((name, _), _)| is_so(name)).map(|(series, value)| (series, *value))
    }
}

impl Current {
    /// Whether a sample of this name belongs to the metric.
    fn check(&self, sample: &str, format: Format) {
        let kind = self.kind.as_deref().expect("type comes before samples");
        let rest = sample.strip_prefix(self.name.as_str());
        let fits = match (kind, format) {
            ("histogram", _) => matches!(rest, Some("_bucket" | "_sum" | "_count")),
            ("counter", Format::OpenMetrics) => rest == Some("_total"),
            ("counter", Format::Prometheus) => rest == Some("") && sample.ends_with("_total"),
            _ => rest == Some("") && !sample.ends_with("_total"),
        };
        assert!(fits, "{sample} is not of {} ({kind})", self.name);
    }
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_letter)
        && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// `name{label="value",…} number`
fn sample(line: &str) -> (Series, f64) {
    let (head, value) = line.rsplit_once(' ').expect("a number");
    let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
    let Some((name, rest)) = head.split_once('{') else {
        assert!(is_name(head), "{line}");
        return ((head.to_owned(), BTreeMap::new()), value);
    };
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label), "{line}");
        let (text, after) = quoted(after).unwrap_or_else(|| panic!("{line}"));
        assert!(labels.insert(label.to_owned(), text).is_none(), "{label} twice: {line}");
        match after {
            "}" => break,
            _ => rest = after.strip_prefix(',').unwrap_or_else(|| panic!("{line}")),
        }
    }
    ((name.to_owned(), labels), value)
}

/// Up to the quote that ends it, and what is behind that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    loop {
        match letters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match letters.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            (_, letter) => value.push(letter),
        }
    }
}
