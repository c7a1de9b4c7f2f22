//! Everything that a cell showed, in order, for those who ask at its end.

use std::time::{Duration, Instant};

use redoma_model::Output;

use crate::capture::Stream;
use crate::meter::Phase;
use crate::supervise::Observer;
use crate::tools::ToolCall;

/// Passes on what it hears, and keeps it.
pub(crate) struct Transcript<'a> {
    observer: &'a mut dyn Observer,
    outputs: Vec<Output>,
    /// What has been printed since the last of them.
    printed: Vec<u8>,
    stream: Stream,
}

impl<'a> Transcript<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Self {
        Self { observer, outputs: Vec::new(), printed: Vec::new(), stream: Stream::Stdout }
    }

    fn end_printed(&mut self) {
        if !self.printed.is_empty() {
            let text = String::from_utf8_lossy(&std::mem::take(&mut self.printed)).into_owned();
            self.outputs.push(match self.stream {
                Stream::Stdout => Output::Stdout { text },
                Stream::Stderr => Output::Stderr { text },
            });
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Output> {
        self.end_printed();
        self.outputs
    }
}

impl Observer for Transcript<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        if stream != self.stream {
            self.end_printed();
            self.stream = stream;
        }
        self.printed.extend_from_slice(bytes);
        self.observer.output(stream, bytes);
    }

    fn tool_call(&mut self, call: ToolCall) {
        self.observer.tool_call(call);
    }

    fn shown(&mut self, output: &Output) {
        self.end_printed();
        self.outputs.push(output.clone());
        self.observer.shown(output);
    }

    fn phase(&mut self, phase: Phase, begun: Instant, time: Duration) {
        self.observer.phase(phase, begun, time);
    }
}
