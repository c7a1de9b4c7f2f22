//! `redoma keys`: who may use the server. Works beside a running one.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use redoma_model::{AuditEvent, AuditedKey, Name, Owner, Role, Who};
use redoma_store::audit::{Audit, AuditError, FOLDER};
use redoma_store::{KeyRecord, NewKey};
use serde_json::json;

use crate::cli::{Global, KeyArguments, KeysCommand};
use crate::config::{Config, data_dir};
use crate::serve::ADMIN_CLIENT;
use crate::terminal::harmless;
use crate::{engine, terminal};

/// Whose things a user's key opens, if it is nobody's user but their own.
const OWN_CLIENT: &str = "direct";

pub fn keys(global: &Global, command: KeysCommand) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let store = engine::store(&config, &data_dir)?;
    let mut out = std::io::stdout();
    match command {
        KeysCommand::Create(arguments) => {
            let json = arguments.json;
            if let Some(name) = &arguments.profile {
                config.profile(Some(name))?;
            }
            let (record, secret) = store.add_key(new_key(arguments)?)?;
            note(&config, &data_dir, AuditEvent::KeyCreated, &record);
            if json {
                let mut shown = shown(&record);
                shown["secret"] = secret.reveal().into();
                writeln!(out, "{}", terminal::json_line(&shown))?;
            } else {
                writeln!(out, "{}", secret.reveal())?;
                terminal::note("this is shown once; whoever has it can use the server as you said");
            }
        }
        KeysCommand::List { json: true } => {
            let all: Vec<_> = store.keys()?.iter().map(shown).collect();
            writeln!(out, "{}", terminal::json_line(&all))?;
        }
        KeysCommand::List { json: false } => {
            writeln!(
                out,
                "{:<22} {:<7} {:<16} {:<20} {:<8} {:<10} LABEL",
                "ID", "ROLE", "CLIENT", "USER", "STATE", "PROFILE"
            )?;
            for key in store.keys()? {
                let state = if key.revoked_at.is_some() { "revoked" } else { "valid" };
                let user = harmless(key.owner.user.as_deref().unwrap_or("-"));
                let label = harmless(key.label.as_deref().unwrap_or("-"));
                let profile = harmless(key.profile.as_deref().unwrap_or("-"));
                let role = role(key.role);
                writeln!(
                    out,
                    "{:<22} {role:<7} {:<16} {user:<20} {state:<8} {profile:<10} {label}",
                    key.id,
                    harmless(&key.owner.client)
                )?;
            }
        }
        KeysCommand::Revoke { id } => {
            let wanted = id.parse().ok().context("that is not a key's id; `redoma keys list` shows them")?;
            if !store.revoke_key(&wanted)? {
                bail!("there is no valid key `{id}`; `redoma keys list` shows them");
            }
            if let Some(record) = store.keys()?.iter().find(|record| record.id == wanted) {
                note(&config, &data_dir, AuditEvent::KeyRevoked, record);
            }
            terminal::done("revoked");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes it down, unless a server has the audit open: there is one writer only.
fn note(config: &Config, data_dir: &Path, event: fn(AuditedKey) -> AuditEvent, key: &KeyRecord) {
    if !config.audit().enabled {
        return;
    }
    let uid = rustix::process::getuid().as_raw();
    let who = Who {
        client: Some("command line".to_owned()),
        user: Some(format!("uid {uid}")),
        role: Some(Role::Admin),
        ..Who::default()
    };
    let written = Audit::open(&data_dir.join(FOLDER), config.audit().clone())
        .and_then(|audit| audit.append(&event(key.audited(who))).map(|_| ()));
    match written {
        Ok(()) => {}
        Err(AuditError::Locked { .. }) => {
            terminal::note("a server is running, and this is not in its audit; POST /api/v1/keys would be");
        }
        Err(error) => terminal::warning(&format!("this is not in the audit: {error}")),
    }
}

fn new_key(arguments: KeyArguments) -> anyhow::Result<NewKey> {
    let KeyArguments { client, user, admin, label, profile, .. } = arguments;
    let checked = |what: &str, text: Option<String>| -> anyhow::Result<Option<Name>> {
        text.map(|text| text.parse().with_context(|| format!("{what} `{}`", text.escape_debug()))).transpose()
    };
    let (client, user) = (checked("--client", client)?, checked("--user", user)?);
    let (client, user) = (client.map(Name::into_string), user.map(Name::into_string));
    let label = checked("--label", label)?;
    let (role, client, user) = match (admin, client, user) {
        (true, _, _) => (Role::Admin, ADMIN_CLIENT.to_owned(), None),
        (false, client, Some(user)) => {
            (Role::User, client.unwrap_or_else(|| OWN_CLIENT.to_owned()), Some(user))
        }
        (false, Some(client), None) => (Role::Client, client, None),
        (false, None, None) => bail!("say whose key it is: --client NAME, --user USER or --admin"),
    };
    Ok(NewKey { role, owner: Owner { client, user }, label, profile })
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Client => "client",
        Role::User => "user",
    }
}

fn shown(key: &KeyRecord) -> serde_json::Value {
    json!({
        "id": key.id,
        "role": key.role,
        "client": key.owner.client,
        "user": key.owner.user,
        "label": key.label,
        "profile": key.profile,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    })
}
