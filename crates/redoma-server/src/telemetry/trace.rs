//! What is noted of one request while it is answered, and what is left of it then.
//!
//! The request's task has a handle, and so has whoever goes on for it: a stream of events, the thread on which its program runs.
//! When the last of them is gone, whatever the reason, the trace is over and goes to the queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderValue, Response, header};
use redoma_engine::meter::{Phase, outcome};
use redoma_model::RunReport;

use super::Tracer;
use super::traceparent::{Parent, SpanId, TraceId};
use crate::failure::Failure;

/// More phases than any request has.
const MOST_PHASES: usize = 32;

/// A trace that goes on.
#[derive(Debug, Clone)]
pub struct Trace(Arc<Recording>);

#[derive(Debug)]
struct Recording {
    tracer: Arc<Tracer>,
    ids: Ids,
    request: TracedRequest,
    begun: Instant,
    begun_at: SystemTime,
    noted: Mutex<Noted>,
}

#[derive(Debug, Clone, Copy)]
pub struct Ids {
    pub trace: TraceId,
    pub span: SpanId,
    /// The caller's.
    pub parent: Option<SpanId>,
}

/// The request, in words that are the server's own.
#[derive(Debug, Clone, Copy)]
pub struct TracedRequest {
    pub method: &'static str,
    /// The route's template.
    pub route: &'static str,
}

#[derive(Debug, Default)]
struct Noted {
    /// Only who was let in leaves a trace.
    is_let_in: bool,
    status: Option<u16>,
    /// When the whole answer was there; of one that is streamed nobody says so.
    answered: Option<Instant>,
    failure: Option<&'static str>,
    ran: Option<Ran>,
    phases: Vec<(Phase, Instant, Duration)>,
}

/// How a program ended, and under what. Nothing of what it is or whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub language: String,
    pub profile: String,
    pub isolation: String,
    pub outcome: &'static str,
}

/// A trace that is over. Times are since 1970.
#[derive(Debug)]
pub struct Finished {
    pub ids: Ids,
    pub request: TracedRequest,
    pub begun: Duration,
    pub ended: Duration,
    pub status: Option<u16>,
    pub failure: Option<&'static str>,
    pub ran: Option<Ran>,
    /// In the order in which they began.
    pub phases: Vec<FinishedPhase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedPhase {
    pub phase: Phase,
    pub begun: Duration,
    pub ended: Duration,
}

impl Finished {
    /// How many spans it is.
    pub fn spans(&self) -> usize {
        1 + self.phases.len()
    }
}

impl Trace {
    /// None, if it is none of those that are kept.
    pub(super) fn begin(
        tracer: &Arc<Tracer>,
        request: TracedRequest,
        parent: Option<Parent>,
    ) -> Option<Self> {
        let trace = match parent {
            Some(parent) => parent.is_sampled.then_some(parent.trace)?,
            None => TraceId::random().filter(|id| id.is_within(tracer.config.sample.share()))?,
        };
        let ids = Ids { trace, span: SpanId::random()?, parent: parent.map(|parent| parent.span) };
        Some(Self(Arc::new(Recording {
            tracer: Arc::clone(tracer),
            ids,
            request,
            begun: Instant::now(),
            begun_at: SystemTime::now(),
            noted: Mutex::default(),
        })))
    }

    pub fn id(&self) -> TraceId {
        self.0.ids.trace
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever sent it may be here.
    pub fn let_in(&self) {
        self.noted().is_let_in = true;
    }

    pub fn phase(&self, phase: Phase, begun: Instant, time: Duration) {
        let mut noted = self.noted();
        if noted.phases.len() < MOST_PHASES {
            noted.phases.push((phase, begun, time));
        }
    }

    pub fn ran(&self, report: &RunReport) {
        self.noted().ran = Some(Ran {
            language: report.language.clone(),
            profile: report.profile.clone(),
            isolation: report.isolation.engine.clone(),
            outcome: outcome(report),
        });
    }

    /// The program did not run: an error, if that is the server's fault.
    pub fn failed(&self, failure: &Failure) {
        if failure.status.is_server_error() {
            self.noted().failure = Some(failure.code);
        }
    }

    pub fn answered<B>(&self, response: &Response<B>) {
        let events = HeaderValue::from_static("text/event-stream");
        let is_streamed = response.headers().get(header::CONTENT_TYPE) == Some(&events);
        let mut noted = self.noted();
        noted.status = Some(response.status().as_u16());
        noted.answered = (!is_streamed).then(Instant::now);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let noted = std::mem::take(self.noted.get_mut().unwrap_or_else(PoisonError::into_inner));
        // Whoever asks for nothing that can be run leaves nothing, else a flood of it would push out all others.
        let came_to_something = !noted.phases.is_empty() || noted.ran.is_some() || noted.failure.is_some();
        if !noted.is_let_in || !came_to_something {
            return;
        }
        let zero = self.begun_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = |moment: Instant| zero + moment.saturating_duration_since(self.begun);
        let mut phases: Vec<_> = noted.phases.into_iter().collect();
        phases.sort_by_key(|(_, begun, _)| *begun);
        let finished = phases.into_iter().map(|(phase, begun, time)| FinishedPhase {
            phase,
            begun: at(begun),
            ended: at(begun) + time,
        });
        self.tracer.queue.push(Finished {
            ids: self.ids,
            request: self.request,
            begun: zero,
            ended: at(noted.answered.unwrap_or_else(Instant::now)),
            status: noted.status,
            failure: noted.failure,
            ran: noted.ran,
            phases: finished.collect(),
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A request of which nothing more is known.
    pub fn finished() -> Finished {
        let (trace, span) = (TraceId::random().unwrap(), SpanId::random().unwrap());
        Finished {
            ids: Ids { trace, span, parent: None },
            request: TracedRequest { method: "POST", route: "/api/v1/executions" },
            begun: Duration::from_secs(1),
            ended: Duration::from_secs(2),
            status: None,
            failure: None,
            ran: None,
            phases: Vec::new(),
        }
    }
}
