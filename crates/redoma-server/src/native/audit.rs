//! Who did what. For admins.

#![expect(unused_qualifications, reason = "utoipa's macros write types out in full")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redoma_engine::interpreter::audit::{
    Audit, AuditError, AuditNews, AuditSubscription, Flaw, Unsound, VerifyOptions, as_written, csv, moment,
};
use redoma_model::{AuditEvent, AuditKind, AuditQuery, AuditRecord, AuditedAction};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, Question};
use super::{blocking, id};
use crate::App;
use crate::auth::Caller;
use crate::download::Pieces;
use crate::failure::{Failure, Problem};

/// Who watch at the same time: each holds a thread.
const MOST_WATCHERS: usize = 16;
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How soon somebody who watches notices that the server ends.
const TICK: Duration = Duration::from_millis(250);
/// Records that are read at once.
const PAGE: usize = 500;

/// Which records. What is not said does not matter.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    user: Option<String>,
    client: Option<String>,
    session: Option<String>,
    execution: Option<String>,
    /// One or more, with commas between: `execution_started,execution_denied`.
    #[param(example = "execution_started")]
    kind: Option<String>,
    /// From then on: how long ago (`1h`), or when (`2026-11-15T21:00:00Z`).
    #[param(example = "1h")]
    since: Option<String>,
    /// Up to then.
    until: Option<String>,
}

impl Question for Filter {
    const NAMES: &'static [&'static str] =
        &["user", "client", "session", "execution", "kind", "since", "until"];
}

impl Filter {
    /// As it was asked for.
    fn words(&self) -> String {
        let said = [
            ("user", &self.user),
            ("client", &self.client),
            ("session", &self.session),
            ("execution", &self.execution),
            ("kind", &self.kind),
            ("since", &self.since),
            ("until", &self.until),
        ];
        let said = said.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_deref()?)));
        said.collect::<Vec<_>>().join(" ").chars().take(500).collect()
    }

    fn query(&self) -> Result<AuditQuery, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let time = |text: &Option<String>| {
            let parsed = text.as_deref().map(|text| moment::parse(text, now)).transpose();
            parsed.map_err(|error| Failure::bad_request(error.to_string()))
        };
        let kinds = self.kind.as_deref().unwrap_or_default().split(',').filter(|kind| !kind.is_empty());
        let kinds: Result<Vec<AuditKind>, _> = kinds.map(str::parse).collect();
        Ok(AuditQuery {
            user: self.user.clone(),
            client: self.client.clone(),
            session: self.session.as_deref().map(|text| id(text, "session")).transpose()?,
            execution: self.execution.as_deref().map(|text| id(text, "execution")).transpose()?,
            kinds: kinds.map_err(|error| Failure::bad_request(error.to_string()))?,
            since: time(&self.since)?,
            until: time(&self.until)?,
            limit: usize::MAX,
            ..AuditQuery::default()
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    #[default]
    Newest,
    Oldest,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecordPage {
    /// Which come first [newest].
    order: Option<Order>,
    /// Go on after this record: `next` of the page before.
    after: Option<u64>,
    /// At most so many [100, at most 1000].
    limit: Option<usize>,
}

impl Question for RecordPage {
    const NAMES: &'static [&'static str] = &["order", "after", "limit"];
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RecordList {
    /// As they are in the audit: `kind`, `at`, `seq`, `who`, what goes with the kind, and the seals.
    #[schema(value_type = Vec<Object>)]
    records: Vec<AuditRecord>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

fn audit(app: &App, caller: &Caller) -> Result<Arc<Audit>, Failure> {
    caller.require_admin(app)?;
    let none = || {
        Failure::new(
            StatusCode::NOT_FOUND,
            "no_audit",
            "this server keeps no audit: `[audit] enabled` is false",
        )
    };
    app.interpreter.audit().cloned().ok_or_else(none)
}

/// That somebody looks at the audit is a record as well. If that can't be written they may look all the same: it may be why
/// they do.
async fn note(app: &Arc<App>, caller: &Caller, what: &'static str, which: String) -> Result<(), Failure> {
    let (app, who) = (Arc::clone(app), (&caller.0).into());
    blocking(move || {
        let note = (!which.is_empty()).then_some(which);
        app.interpreter.note(|| AuditEvent::Admin(AuditedAction { who, what: what.to_owned(), note }));
        Ok::<(), Failure>(())
    })
    .await
}

fn failed(error: &AuditError) -> Failure {
    Failure::internal(error)
}

/// Look records up.
///
/// The newest first, unless told otherwise.
#[utoipa::path(get, path = "/api/v1/audit", operation_id = "list_audit", tag = "audit", params(Filter, RecordPage),
    responses((status = 200, body = RecordList), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(filter, page): Asked<Filter, RecordPage>,
) -> Result<Json<RecordList>, Failure> {
    let audit = audit(&app, &caller)?;
    let limit = page.limit.unwrap_or(100).clamp(1, 1000);
    let newest_first = page.order.unwrap_or_default() == Order::Newest;
    let query = AuditQuery { after: page.after, limit: limit + 1, newest_first, ..filter.query()? };
    // Once for all pages: a record for each would be more to read for who reads on.
    if page.after.is_none() {
        note(&app, &caller, "read_audit", filter.words()).await?;
    }
    let mut records = blocking(move || audit.query(&query).map_err(|error| failed(&error))).await?;
    let is_more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().map(|record| record.seq).filter(|_| is_more);
    Ok(Json(RecordList { records, next }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    #[default]
    Jsonl,
    Csv,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportFormat {
    /// `jsonl`, exactly as in the audit, or `csv` for spreadsheets [jsonl].
    format: Option<Format>,
}

impl Question for ExportFormat {
    const NAMES: &'static [&'static str] = &["format"];
}

/// All records that match, oldest first, as a file.
#[utoipa::path(get, path = "/api/v1/audit/export", operation_id = "export_audit", tag = "audit", params(Filter, ExportFormat),
    responses((status = 200, content_type = "application/x-ndjson"), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub async fn export(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(filter, format): Asked<Filter, ExportFormat>,
) -> Result<Response, Failure> {
    let audit = audit(&app, &caller)?;
    let (query, format) = (filter.query()?, format.format.unwrap_or_default());
    note(&app, &caller, "export_audit", filter.words()).await?;
    let (sender, pieces) = Pieces::new();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send_all(&audit, query, format, &sender) {
            tracing::error!(%error, "an export of the audit ended early");
            let _ = sender.blocking_send(Err(io::Error::other("the export ended early")));
        }
    });
    let (kind, name) = match format {
        Format::Jsonl => ("application/x-ndjson", "attachment; filename=\"audit.jsonl\""),
        Format::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"audit.csv\""),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::new(pieces)).into_response())
}

fn send_all(
    audit: &Audit,
    mut query: AuditQuery,
    format: Format,
    sender: &Sender<io::Result<Bytes>>,
) -> Result<(), AuditError> {
    let last = audit.head().seq;
    query.limit = PAGE;
    if format == Format::Csv && sender.blocking_send(Ok(csv::HEADER.into())).is_err() {
        return Ok(());
    }
    loop {
        let records = audit.query(&query)?;
        let is_end = records.len() < PAGE;
        query.after = records.last().map(|record| record.seq).or(query.after);
        let mut text = String::new();
        for record in records.iter().filter(|record| record.seq <= last) {
            match format {
                Format::Jsonl => text.push_str(&(as_written(record) + "\n")),
                Format::Csv => text.push_str(&csv::row(record)),
            }
        }
        let is_gone = !text.is_empty() && sender.blocking_send(Ok(text.into())).is_err();
        if is_end || is_gone || query.after.is_some_and(|after| after >= last) {
            return Ok(());
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Since {
    /// Begin with what came after this record; also as `Last-Event-ID`.
    after: Option<u64>,
}

impl Question for Since {
    const NAMES: &'static [&'static str] = &["after"];
}

/// Records as they come, as server-sent events.
///
/// Each event is a record, with its number as `id`. Who is too slow gets an event `missed` with how many went by.
#[utoipa::path(get, path = "/api/v1/audit/stream", operation_id = "stream_audit", tag = "audit", params(Filter, Since),
    responses((status = 200, content_type = "text/event-stream"), (status = 400, body = Problem), (status = 403, body = Problem),
              (status = 429, body = Problem)))]
pub async fn stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(filter, since): Asked<Filter, Since>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let audit = audit(&app, &caller)?;
    let query = filter.query()?;
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse().ok());
    let place =
        Place::take().ok_or_else(|| Failure::busy("too many watch the audit already; try again later"))?;
    note(&app, &caller, "watch_audit", filter.words()).await?;
    let (sender, pieces) = Pieces::new();
    let after = seen.or(since.after);
    tokio::task::spawn_blocking(move || {
        let _place = place;
        // First this, so that nothing falls between what was and what comes.
        let news = audit.subscribe(AuditQuery { since: None, after: None, ..query.clone() });
        // Whoever has gone is told nothing.
        let _ = watch(&app, &audit, &news, &query, after, &sender);
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(pieces)).into_response())
}

static WATCHERS: AtomicUsize = AtomicUsize::new(0);

/// Somebody who watches.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let is_room = |count| (count < MOST_WATCHERS).then_some(count + 1);
        WATCHERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_room).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        WATCHERS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why no more is told.
enum Over {
    Gone,
    Failed,
}

fn watch(
    app: &App,
    audit: &Audit,
    news: &AuditSubscription,
    query: &AuditQuery,
    after: Option<u64>,
    sender: &Sender<io::Result<Bytes>>,
) -> Result<(), Over> {
    let send = |text: String| sender.blocking_send(Ok(text.into())).map_err(|_| Over::Gone);
    let record =
        |record: &AuditRecord| format!("id: {}\nevent: record\ndata: {}\n\n", record.seq, as_written(record));
    send(": watching\n\n".to_owned())?;
    let mut told = after.unwrap_or(0);
    if after.is_some() || query.since.is_some() {
        loop {
            let page = AuditQuery { after: Some(told), limit: PAGE, ..query.clone() };
            let records = audit.query(&page).map_err(|_| Over::Failed)?;
            for found in &records {
                send(record(found))?;
                told = found.seq;
            }
            if records.len() < PAGE {
                break;
            }
        }
    }
    let mut last = Instant::now();
    while !*app.stopping.borrow() {
        match news.next(TICK) {
            Ok(Some(AuditNews::Record(found))) if found.seq <= told => continue,
            Ok(Some(AuditNews::Record(found))) => send(record(&found))?,
            Ok(Some(AuditNews::Missed(count))) => {
                send(format!("event: missed\ndata: {{\"records\":{count}}}\n\n"))?;
            }
            Ok(None) if last.elapsed() < HEARTBEAT && !sender.is_closed() => continue,
            Ok(None) => send(": still watching\n\n".to_owned())?,
            Err(_) => return Ok(()),
        }
        last = Instant::now();
    }
    Ok(())
}

/// Whether the audit is as it was written.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verification {
    sound: bool,
    records: u64,
    segments: u64,
    bytes: u64,
    /// The newest record and its hash, `SEQ:HASH`: written down elsewhere, it shows later that nothing before it was changed.
    head: Option<String>,
    /// What is wrong, and where.
    #[schema(value_type = Vec<Object>)]
    flaws: Vec<Flaw>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct KnownHead {
    /// A record that is known from elsewhere to be in it, `SEQ:HASH`.
    head: Option<String>,
}

impl Question for KnownHead {
    const NAMES: &'static [&'static str] = &["head"];
}

/// Check that nothing was changed.
///
/// Reads all of it: some seconds per GiB. One at a time.
#[utoipa::path(post, path = "/api/v1/audit/verify", operation_id = "verify_audit", tag = "audit", params(KnownHead),
    responses((status = 200, body = Verification), (status = 400, body = Problem), (status = 403, body = Problem),
              (status = 429, body = Problem)))]
pub async fn verify(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(known, _): Asked<KnownHead>,
) -> Result<Json<Verification>, Failure> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let audit = audit(&app, &caller)?;
    let head = known.head.map(|text| text.parse()).transpose();
    let head = head.map_err(|error| Failure::bad_request(format!("{error}")))?;
    note(&app, &caller, "verify_audit", String::new()).await?;
    let work = move || {
        let Ok(_only) = ONE.try_lock() else {
            return Err(Failure::busy("the audit is being verified already; try again later"));
        };
        match audit.verify(VerifyOptions { head, ..VerifyOptions::default() }) {
            Ok(sound) => Ok(Verification {
                sound: true,
                records: sound.records,
                segments: sound.segments,
                bytes: sound.bytes,
                head: Some(sound.head.to_string()),
                flaws: Vec::new(),
            }),
            Err(Unsound::Flaws(flaws)) => {
                tracing::error!(
                    flaws = flaws.len(),
                    first = flaws.first().map(ToString::to_string),
                    "the audit is not as it was written"
                );
                Ok(Verification { sound: false, records: 0, segments: 0, bytes: 0, head: None, flaws })
            }
            Err(Unsound::Unreadable(error)) => Err(failed(&error)),
        }
    };
    Ok(Json(blocking(work).await?))
}
