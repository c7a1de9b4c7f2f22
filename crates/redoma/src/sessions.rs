//! `redoma sessions`: what the server keeps.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use redoma_model::ByteSize;
use redoma_store::SessionQuery;

use crate::cli::{Global, SessionsCommand};
use crate::config::{Config, data_dir};
use crate::terminal::{Progress, harmless};
use crate::{engine, serve, terminal};

pub fn sessions(global: &Global, command: SessionsCommand) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let store = engine::store(&config, &data_dir)?;
    let mut out = std::io::stdout();
    match command {
        SessionsCommand::List { user, limit, json } => {
            let mut found = Vec::new();
            let mut query = SessionQuery { owner: None, after: None, limit: 1000 };
            while found.len() < limit {
                let page = store.sessions(&query)?;
                let Some(last) = page.last() else { break };
                query.after = Some((last.created_at, last.id.clone()));
                found.extend(page.into_iter().filter(|session| user.is_none() || session.owner.user == user));
            }
            found.truncate(limit);
            if json {
                writeln!(out, "{}", terminal::json_line(&found))?;
                return Ok(ExitCode::SUCCESS);
            }
            writeln!(
                out,
                "{:<22} {:<16} {:<26} {:>6} {:>10}  NAME",
                "ID", "CLIENT", "USER", "FILES", "SIZE"
            )?;
            for session in found {
                let user = harmless(session.owner.user.as_deref().unwrap_or("-"));
                let (client, files) = (harmless(&session.owner.client), session.files);
                let size = ByteSize(session.bytes).to_string();
                let name = harmless(session.name.as_deref().unwrap_or("-"));
                writeln!(out, "{:<22} {client:<16} {user:<26} {files:>6} {size:>10}  {name}", session.id)?;
            }
        }
        SessionsCommand::Rm { ids } => {
            // A running server knows what is in use, this program does not.
            let _only_one = serve::lock(&data_dir)
                .context("use DELETE /api/v1/sessions/ID on the running server instead")?;
            for id in &ids {
                let wanted = id.parse().ok().with_context(|| format!("`{id}` is not a session's id"))?;
                if store.remove_session(&wanted)?.is_none() {
                    bail!("there is no session `{id}`");
                }
                terminal::done(&format!("removed {id}"));
            }
        }
        SessionsCommand::Check => {
            let progress = Progress::start("checking the database and every file");
            let wrong = store.check(&mut |at, of| progress.count(at, of, "sessions"))?;
            progress.finish();
            for line in &wrong {
                writeln!(out, "{}", harmless(line))?;
            }
            if !wrong.is_empty() {
                terminal::error(&format!("{} things are not as they should be", wrong.len()));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
