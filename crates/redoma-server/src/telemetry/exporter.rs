//! Sends what waits: every few seconds, or when there is much, and once more at the end.
//!
//! It is a task of its own that nobody waits for. A collector that is down costs spans, which are counted, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::post::{PostError, post};
use super::trace::Finished;
use super::{Tracer, otlp};

const EVERY: Duration = Duration::from_secs(5);
/// Before the second try, where the collector does not say when.
const BACK_OFF: Duration = Duration::from_secs(1);
/// However long it wants us to wait.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// What is left at the end has so long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The task that sends.
#[derive(Debug)]
pub struct Exporter {
    tracer: Arc<Tracer>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Exporter {
    pub fn start(tracer: Arc<Tracer>) -> Self {
        let stop = watch::Sender::new(false);
        let collector = tracer.config.endpoint.authority();
        tracing::info!(collector, "traces are sent");
        let task = tokio::spawn(export(Arc::clone(&tracer), stop.subscribe()));
        Self { tracer, stop, task }
    }

    /// Sends what is left, if that can be done soon.
    pub async fn finish(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(LAST_WORDS, &mut self.task).await.is_ok() {
            return;
        }
        self.task.abort();
        tracing::warn!("the last spans were not sent: the collector did not take them in time");
        loop {
            let lost = self.tracer.queue.take();
            if lost.is_empty() {
                return;
            }
            self.tracer.queue.drop_spans(count(&lost));
        }
    }
}

fn count(batch: &[Finished]) -> usize {
    batch.iter().map(Finished::spans).sum()
}

/// What was last told in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Works,
    Fails,
}

async fn export(tracer: Arc<Tracer>, mut stop: watch::Receiver<bool>) {
    let mut told = Told::Works;
    loop {
        let is_over = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => true,
            () = tracer.queue.has_batch.notified() => false,
            () = tokio::time::sleep(EVERY) => false,
        };
        loop {
            let batch = tracer.queue.take();
            if batch.is_empty() {
                break;
            }
            let body = otlp::body(tracer.config.service_name.as_str(), &batch);
            let result = deliver(&tracer, body.into(), &mut stop).await;
            told = settle(&tracer, count(&batch), result, told);
        }
        if is_over {
            return;
        }
    }
}

/// Tries twice.
async fn deliver(tracer: &Tracer, body: Bytes, stop: &mut watch::Receiver<bool>) -> Result<usize, PostError> {
    let error = match post(&tracer.config, body.clone()).await {
        Err(error) if error.may_pass() => error,
        result => return result,
    };
    let pause = error.retry_after().unwrap_or(BACK_OFF).min(LONGEST_BACK_OFF);
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        // There is no later.
        _ = stop.wait_for(|stop| *stop) => {}
    }
    post(&tracer.config, body).await
}

/// Counts what became of a batch. The log is told when that changes, not each time.
fn settle(tracer: &Tracer, spans: usize, result: Result<usize, PostError>, told: Told) -> Told {
    let collector = tracer.config.endpoint.authority();
    match result {
        Ok(rejected) => {
            let rejected = rejected.min(spans);
            tracer.queue.sent.add((spans - rejected) as u64);
            tracer.queue.drop_spans(rejected);
            if told == Told::Fails {
                tracing::info!(collector, "the collector takes traces again");
            }
            Told::Works
        }
        Err(error) => {
            tracer.queue.drop_spans(spans);
            if told == Told::Works {
                tracing::warn!(collector, %error, "traces can't be sent; what is dropped is counted");
            }
            Told::Fails
        }
    }
}
