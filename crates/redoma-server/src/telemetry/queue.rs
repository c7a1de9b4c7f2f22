//! Spans that wait to be sent: only so many, and whoever brings more does not wait. What has no room is counted.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redoma_engine::meter::{Counter, Exposition};
use tokio::sync::Notify;

use super::trace::Finished;

/// So many spans wait.
pub const MOST: usize = 2048;
/// So many go together.
pub const BATCH: usize = 512;

#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    /// There are enough to be sent.
    pub has_batch: Notify,
    pub sent: Counter,
    pub dropped: Counter,
}

#[derive(Debug, Default)]
struct Waiting {
    traces: VecDeque<Finished>,
    spans: usize,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, trace: Finished) {
        let spans = trace.spans();
        let mut waiting = self.waiting();
        if waiting.spans + spans > MOST {
            drop(waiting);
            self.drop_spans(spans);
            return;
        }
        waiting.spans += spans;
        waiting.traces.push_back(trace);
        if waiting.spans >= BATCH {
            self.has_batch.notify_one();
        }
    }

    /// The oldest, as many as go together; none, if none wait.
    pub fn take(&self) -> Vec<Finished> {
        let mut waiting = self.waiting();
        let (mut count, mut spans) = (0, 0);
        for trace in &waiting.traces {
            if count > 0 && spans + trace.spans() > BATCH {
                break;
            }
            count += 1;
            spans += trace.spans();
        }
        waiting.spans -= spans;
        waiting.traces.drain(..count).collect()
    }

    pub fn drop_spans(&self, count: usize) {
        self.dropped.add(count as u64);
    }
}

/// Also where nothing is sent: the same metrics on every server.
pub fn write(queue: Option<&Queue>, page: &mut Exposition) {
    let (sent, dropped) = queue.map_or((0, 0), |queue| (queue.sent.get(), queue.dropped.get()));
    let help = "Spans of traces that the collector has taken.";
    page.counter("redoma_telemetry_spans_sent", help).count(&[], sent);
    let help = "Spans of traces that were lost: too many at once, or the collector did not take them.";
    page.counter("redoma_telemetry_spans_dropped", help).count(&[], dropped);
}

#[cfg(test)]
mod tests {
    use redoma_engine::meter::Phase;

    use super::super::trace::FinishedPhase;
    use super::super::trace::tests::finished;
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_nobody_waits() {
        let queue = Queue::default();
        let at = std::time::Duration::ZERO;
        let phases = [Phase::Queue, Phase::Assign, Phase::Run, Phase::Harvest];
        let phases: Vec<_> =
            phases.into_iter().map(|phase| FinishedPhase { phase, begun: at, ended: at }).collect();
        for _ in 0..500 {
            queue.push(Finished { phases: phases.clone(), ..finished() });
        }
        // 409 traces of five spans fit.
        assert_eq!(queue.dropped.get(), 91 * 5);
        let mut sizes = Vec::new();
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.iter().map(Finished::spans).sum::<usize>());
        }
        assert_eq!(sizes, [510, 510, 510, 510, 5]);
        queue.push(finished());
        assert_eq!((queue.take().len(), queue.dropped.get()), (1, 455));
    }
}
