//! Numbers as text, in the two formats that Prometheus reads: its own (0.0.4) and OpenMetrics (1.0.0). They differ in how a
//! counter's name stands in its head lines, and in the last line.

use std::fmt::Write;

use super::family::Family;
use super::histogram::{Histogram, Reading};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A page of metrics, written from top to bottom.
#[derive(Debug)]
pub struct Exposition {
    text: String,
    format: Format,
}

/// Where the samples of one metric go.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: String,
}

impl Exposition {
    pub fn new(format: Format) -> Self {
        Self { text: String::with_capacity(32 << 10), format }
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `name` without the `_total` that every counter's samples end with.
    pub fn counter(&mut self, name: &str, help: &str) -> Samples<'_> {
        let total = format!("{name}_total");
        match self.format {
            Format::Prometheus => self.begin(&total, "counter", help),
            Format::OpenMetrics => self.begin(name, "counter", help),
        }
        Samples { text: &mut self.text, name: total }
    }

    pub fn gauge(&mut self, name: &str, help: &str) -> Samples<'_> {
        self.begin(name, "gauge", help);
        Samples { text: &mut self.text, name: name.to_owned() }
    }

    pub fn histogram(&mut self, name: &str, help: &str) -> Samples<'_> {
        self.begin(name, "histogram", help);
        Samples { text: &mut self.text, name: name.to_owned() }
    }

    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Samples<'_> {
    fn write(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let Self { text, name } = self;
        text.push_str(name);
        text.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            text.push_str(label);
            text.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    letter => text.push(letter),
                }
            }
            text.push('"');
        }
        let _ = writeln!(text, "{}{value}", if labels.is_empty() { " " } else { "} " });
    }

    pub fn count(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.write("", labels, value);
        self
    }

    pub fn number(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.write("", labels, value);
        self
    }

    pub fn spread(&mut self, labels: &[(&str, &str)], histogram: &Histogram) -> &mut Self {
        let Reading { below, count, sum } = histogram.read();
        let mut with_bound = labels.to_vec();
        for (bound, count) in below {
            let bound = format!("{bound:?}");
            with_bound.push(("le", &bound));
            self.write("_bucket", &with_bound, count);
            with_bound = labels.to_vec();
        }
        with_bound.push(("le", "+Inf"));
        self.write("_bucket", &with_bound, count);
        self.write("_sum", labels, sum);
        self.write("_count", labels, count);
        self
    }

    pub fn spreads(&mut self, family: &Family<Histogram>) {
        family.each(|labels, histogram| {
            self.spread(labels, histogram);
        });
    }

    pub fn counts(&mut self, family: &Family<super::Counter>) {
        family.each(|labels, counter| {
            self.count(labels, counter.get());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_written_as_their_readers_want_them() {
        let page = |format| {
            let mut page = Exposition::new(format);
            page.counter("a", "Things.").count(&[("of", "x\"\\\ny")], 3);
            page.gauge("b", "Other.").number(&[], 0.5);
            page.finish()
        };
        let counter = "a_total{of=\"x\\\"\\\\\\ny\"} 3\n";
        let gauge = "# HELP b Other.\n# TYPE b gauge\nb 0.5\n";
        assert_eq!(
            page(Format::Prometheus),
            format!("# HELP a_total Things.\n# TYPE a_total counter\n{counter}{gauge}")
        );
        assert_eq!(
            page(Format::OpenMetrics),
            format!("# HELP a Things.\n# TYPE a counter\n{counter}{gauge}# EOF\n")
        );
    }
}
