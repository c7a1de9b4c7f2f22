//! `redoma audit`: who did what. Works beside a running server, and only reads.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use redoma_model::{AuditEvent, AuditQuery, AuditRecord, AuditSettings, AuditedServer, ByteSize};
use redoma_store::audit::{
    AuditFollower, AuditKey, FOLDER, FoundAudit, Sound, Unsound, VerifyOptions, as_written, csv, moment,
    query_folder, verify,
};
use redoma_store::{Audit, AuditError};
use serde_json::json;

use crate::cli::{AuditCommand, AuditFilter, ExportFormat, Global};
use crate::config::data_dir;
use crate::terminal::{self, Progress, harmless, harmless_json, json_line};

/// How often a follower looks.
const LOOK: Duration = Duration::from_millis(200);
/// Records that are read at once.
const PAGE: usize = 1000;
/// How often the head is logged, for those who keep logs elsewhere.
pub const LOG_HEAD: Duration = Duration::from_hours(1);

pub fn audit(global: &Global, command: AuditCommand) -> anyhow::Result<ExitCode> {
    let folder = data_dir(global)?.join(FOLDER);
    let mut out = BufWriter::new(io::stdout());
    let result = match command {
        AuditCommand::Tail { filter, count, follow, json } => {
            tail(&folder, &filter, count, follow, json, &mut out).map(|()| ExitCode::SUCCESS)
        }
        AuditCommand::Verify { head, key, json } => {
            verify_all(&folder, head.as_deref(), key.as_deref(), json, &mut out)
        }
        AuditCommand::Export { filter, format, out: Some(path) } => {
            let file = File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
            let count = export(&folder, &filter, format, false, &mut BufWriter::new(file))?;
            terminal::done(&format!("{count} records in {}", path.display()));
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Export { filter, format, out: None } => {
            let is_shown = io::stdout().is_terminal();
            export(&folder, &filter, format, is_shown, &mut out).map(|_| ExitCode::SUCCESS)
        }
    };
    match result.and_then(|code| out.flush().map(|()| code).map_err(Into::into)) {
        // Whoever reads has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn query(filter: &AuditFilter) -> anyhow::Result<AuditQuery> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let time = |text: &Option<String>| text.as_deref().map(|text| moment::parse(text, now)).transpose();
    let id = |text: &str, what: &str| format!("`{text}` is not {what}'s id");
    Ok(AuditQuery {
        user: filter.user.clone(),
        client: filter.client.clone(),
        session: match &filter.session {
            Some(text) => Some(text.parse().ok().with_context(|| id(text, "a session"))?),
            None => None,
        },
        execution: match &filter.execution {
            Some(text) => Some(text.parse().ok().with_context(|| id(text, "an execution"))?),
            None => None,
        },
        kinds: filter.kind.iter().map(|kind| kind.parse()).collect::<Result<_, _>>()?,
        since: time(&filter.since)?,
        until: time(&filter.until)?,
        limit: usize::MAX,
        ..AuditQuery::default()
    })
}

fn tail(
    folder: &Path,
    filter: &AuditFilter,
    count: usize,
    follow: bool,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let query = query(filter)?;
    let newest = AuditQuery { limit: 1, newest_first: true, ..AuditQuery::default() };
    let last = query_folder(folder, &newest)?.first().map_or(0, |record| record.seq);
    let mut follower = if follow { Some(AuditFollower::after(folder, last)?) } else { None };
    let before = AuditQuery { limit: count, newest_first: true, after: Some(last + 1), ..query.clone() };
    let mut records = query_folder(folder, &before)?;
    records.reverse();
    let show = |record: &AuditRecord, out: &mut dyn Write| {
        let text = if json { harmless_json(&as_written(record)) } else { line(record) };
        writeln!(out, "{text}")
    };
    for record in &records {
        show(record, out)?;
    }
    out.flush()?;
    while let Some(follower) = &mut follower {
        for record in follower.new_records()?.iter().filter(|record| query.matches(record)) {
            show(record, out)?;
        }
        out.flush()?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A record on one line, for people.
fn line(record: &AuditRecord) -> String {
    let who = record.event.who();
    let user = who.and_then(|who| who.user.as_deref()).unwrap_or("-");
    let client = who.and_then(|who| who.client.as_deref()).unwrap_or("-");
    let (time, kind) = (moment::written(record.at), record.event.kind());
    let line = format!("{:>8} {time} {kind:<17} {client}/{user} {}", record.seq, details(&record.event));
    harmless(line.trim_end())
}

fn details(event: &AuditEvent) -> String {
    let short = |text: &str| text.get(..12).unwrap_or(text).to_owned();
    match event {
        AuditEvent::ExecutionStarted(start) | AuditEvent::ExecutionDenied(start) => {
            let verdict = start.verdict.as_ref().map(|verdict| {
                let reason = verdict.reason.as_deref().unwrap_or_default();
                format!(" {:?} {} {reason}", verdict.decision, verdict.rules.join(","))
            });
            let (session, code) =
                (start.session.as_ref().map_or("-", |id| id.as_str()), short(&start.code.sha256));
            let verdict = verdict.unwrap_or_default().to_lowercase();
            format!(
                "{} session={session} {} {} code={code}{verdict}",
                start.execution, start.language, start.profile
            )
        }
        AuditEvent::ExecutionEnded(end) => {
            let how = match (end.ending, end.exit_code, &end.note) {
                (_, Some(code), _) => format!("exit={code}"),
                (Some(ending), None, _) => format!("{ending:?}").to_lowercase(),
                (None, None, note) => note.clone().unwrap_or_default(),
            };
            let hit = if end.limits_hit.is_empty() {
                String::new()
            } else {
                format!(" limits={}", end.limits_hit.join(","))
            };
            format!("{} {how}{hit} files={}", end.execution, end.artifacts.len())
        }
        AuditEvent::FileRead(file) | AuditEvent::FileUploaded(file) | AuditEvent::FileDeleted(file) => {
            format!("{} {} session={}", file.name, ByteSize(file.size), file.session)
        }
        AuditEvent::SessionOpened(session)
        | AuditEvent::SessionRemoved(session)
        | AuditEvent::SessionUndone(session) => session.session.to_string(),
        AuditEvent::KeyCreated(key) | AuditEvent::KeyRevoked(key) => {
            let label = key.label.as_deref().unwrap_or_default();
            format!(
                "{} for {}/{} {label}",
                key.subject,
                key.client.as_deref().unwrap_or("-"),
                key.user.as_deref().unwrap_or("-")
            )
        }
        AuditEvent::Admin(action) | AuditEvent::LoginFailed(action) | AuditEvent::RateLimited(action) => {
            let address = action.who.address.map(|address| format!(" from {address}")).unwrap_or_default();
            format!("{} {}{address}", action.what, action.note.as_deref().unwrap_or_default())
        }
        AuditEvent::ServerStarted(server) | AuditEvent::ServerStopped(server) => {
            format!(
                "redoma {} pid {} {}",
                server.version,
                server.pid,
                server.note.as_deref().unwrap_or_default()
            )
        }
        AuditEvent::Segment(header) => match &header.broken {
            Some(why) => format!("file {}, anew: {why}", header.number),
            None => format!("file {}", header.number),
        },
        AuditEvent::Recovered(recovery) => recovery.note.clone(),
        AuditEvent::Pruned(pruning) => format!("records up to {} removed for their age", pruning.last),
    }
}

fn verify_all(
    folder: &Path,
    head: Option<&str>,
    key: Option<&Path>,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let head = head.map(str::parse).transpose()?;
    let key = match key {
        Some(path) => match AuditKey::read(path)? {
            Some(key) => Some(key),
            None => bail!("there is no key {}", path.display()),
        },
        None => None,
    };
    let progress = (io::stderr().is_terminal() && !json).then(|| Progress::start("verifying the audit"));
    let mut tell = |at: u64, of: u64| {
        if let Some(progress) = &progress {
            let mib = |bytes: u64| usize::try_from(bytes >> 20).unwrap_or(usize::MAX);
            progress.count(mib(at), mib(of), "MiB");
        }
    };
    let result = verify(folder, VerifyOptions { key, head, progress: Some(&mut tell) });
    if let Some(progress) = progress {
        progress.finish();
    }
    match result {
        Ok(sound) => {
            tell_sound(&sound, json, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Unsound::Flaws(flaws)) => {
            if json {
                writeln!(out, "{}", json_line(&json!({ "sound": false, "flaws": flaws })))?;
            } else {
                for flaw in &flaws {
                    writeln!(out, "{}", harmless(&flaw.to_string()))?;
                }
                out.flush()?;
                terminal::error(&format!(
                    "the audit is not as it was written (flaws found: {})",
                    flaws.len()
                ));
            }
            Ok(ExitCode::FAILURE)
        }
        Err(Unsound::Unreadable(error)) => Err(error.into()),
    }
}

fn tell_sound(sound: &Sound, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let Sound { records, segments, bytes, head, pruned_to, is_keyed, unfinished_bytes, lost_records } = sound;
    if json {
        let text = json!({
            "sound": true, "records": records, "segments": segments, "bytes": bytes, "head": head.to_string(),
            "pruned_to": pruned_to, "keyed": is_keyed, "unfinished_bytes": unfinished_bytes, "lost_records": lost_records,
        });
        writeln!(out, "{text}")?;
        return Ok(());
    }
    writeln!(out, "sound: {records} records in {segments} files, {}", ByteSize(*bytes))?;
    writeln!(out, "head {head}")?;
    if let Some(seq) = pruned_to {
        writeln!(out, "records up to {seq} were removed for their age")?;
    }
    if !is_keyed {
        writeln!(
            out,
            "without the key (audit/key): only the hashes were checked, which anybody can make anew"
        )?;
    }
    if *unfinished_bytes > 0 {
        writeln!(
            out,
            "{unfinished_bytes} bytes at the end are no record: one is being written, or a crash left them"
        )?;
    }
    if *lost_records > 0 {
        writeln!(
            out,
            "{lost_records} records were lost when the machine went down (sync = \"disk\" prevents that)"
        )?;
    }
    Ok(())
}

fn export(
    folder: &Path,
    filter: &AuditFilter,
    format: ExportFormat,
    is_shown: bool,
    out: &mut impl Write,
) -> anyhow::Result<usize> {
    let mut query = AuditQuery { limit: PAGE, ..query(filter)? };
    let newest = AuditQuery { limit: 1, newest_first: true, ..AuditQuery::default() };
    let last = query_folder(folder, &newest)?.first().map_or(0, |record| record.seq);
    if format == ExportFormat::Csv {
        out.write_all(csv::HEADER.as_bytes())?;
    }
    let mut count = 0;
    // A file has records exactly as they are in the audit; a terminal must not obey them.
    let cell = |text: String| if is_shown { harmless(text.trim_end()) + "\r\n" } else { text };
    let json = |text: String| if is_shown { harmless_json(&text) } else { text };
    loop {
        let records = query_folder(folder, &query)?;
        for record in records.iter().filter(|record| record.seq <= last) {
            match format {
                ExportFormat::Jsonl => writeln!(out, "{}", json(as_written(record)))?,
                ExportFormat::Csv => out.write_all(cell(csv::row(record)).as_bytes())?,
            }
            count += 1;
        }
        query.after = records.last().map(|record| record.seq).or(query.after);
        if records.len() < PAGE || query.after.is_some_and(|after| after >= last) {
            out.flush()?;
            return Ok(count);
        }
    }
}

/// The audit of a server that starts. What it was found like goes to the log.
pub fn open(settings: &AuditSettings, data_dir: &Path) -> anyhow::Result<Option<Arc<Audit>>> {
    if !settings.enabled {
        tracing::warn!("the audit is switched off: nothing is written down");
        return Ok(None);
    }
    let folder: PathBuf = data_dir.join(FOLDER);
    let audit = Audit::open(&folder, settings.clone()).context("the audit can't be opened")?;
    match audit.found() {
        FoundAudit::New | FoundAudit::Sound => {}
        FoundAudit::Recovered(recovery) => tracing::warn!("the audit: {}", recovery.note),
        FoundAudit::Broken(why) => tracing::error!(
            why,
            "the audit is not as it was written, and begins anew; `redoma audit verify` tells more"
        ),
    }
    audit.append(&AuditEvent::ServerStarted(server()))?;
    log_head(&audit);
    Ok(Some(Arc::new(audit)))
}

/// The end of an orderly stop.
pub fn close(audit: &Audit) -> Result<(), AuditError> {
    audit.append(&AuditEvent::ServerStopped(server()))?;
    log_head(audit);
    Ok(())
}

fn server() -> AuditedServer {
    AuditedServer { version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), note: None }
}

/// Kept elsewhere, it shows later that nothing before it was changed: `redoma audit verify --head`.
pub fn log_head(audit: &Audit) {
    tracing::info!(head = %audit.head(), "the audit's head");
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoma_model::{AuditedAction, Who};

    #[test]
    fn a_hostile_name_does_nothing_to_a_terminal() {
        let who = Who { user: Some("ana\x1b[2J\n\u{202e}x\u{9b}é".to_owned()), ..Who::default() };
        let event = AuditEvent::Admin(AuditedAction { who, what: "reload".to_owned(), note: None });
        let text = String::new;
        let line = line(&AuditRecord { event, at: 0, seq: 7, prev: text(), mac: text(), hash: text() });
        assert!(line.contains("-/ana\\u{1b}[2J\\u{a}\\u{202e}x\\u{9b}é reload"), "{line}");
    }
}
