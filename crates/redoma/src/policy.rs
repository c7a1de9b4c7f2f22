//! `redoma policy`: what a profile's rules say about a program, and which rules there are.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use redoma_engine::Languages;
use redoma_model::Action;
use redoma_policy::facts::Language;
use redoma_policy::{Decided, Origin, Policy, Verdict, language_named};

use crate::cli::{Global, PolicyCommand};
use crate::config::{Config, data_dir};
use crate::terminal::{self, harmless};

/// More than this is not a program that somebody would have read.
const MOST_BYTES: u64 = 16 << 20;

pub fn policy(global: &Global, command: PolicyCommand) -> anyhow::Result<ExitCode> {
    let config = Config::load(global, &data_dir(global)?)?;
    let compiled = |profile: Option<&str>| -> anyhow::Result<Policy> {
        let profile = config.profile(profile)?;
        Ok(Policy::compile(&profile.policy, profile.libraries.listed())?)
    };
    match command {
        PolicyCommand::Check { file, lang, profile, json } => {
            let (language, code) = program(&file, lang.as_deref())?;
            let verdict = compiled(profile.as_deref())?.check(language, &code);
            show(&verdict, json)?;
            Ok(ExitCode::from(u8::from(verdict.is_denied())))
        }
        PolicyCommand::Explain { rule, profile, json } => {
            explain(&compiled(profile.as_deref())?, rule.as_deref(), json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The program, and what it is written in.
fn program(file: &Path, lang: Option<&str>) -> anyhow::Result<(Language, String)> {
    let languages = Languages::built_in();
    let is_stdin = file == Path::new("-");
    let language = match lang {
        Some(name) => languages.by_name(name)?,
        None if is_stdin => bail!("say in which language the program is: --lang py, js, ts or bash"),
        None => languages.by_file(file)?,
    };
    let Some(language) = language_named(language.id) else {
        bail!("programs in {} can't be read", language.id);
    };
    let mut bytes = Vec::new();
    let shown = file.display();
    let read = if is_stdin {
        std::io::stdin().take(MOST_BYTES + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("can't read {shown}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{shown} is too long: 16 MiB at most");
    }
    Ok((language, String::from_utf8_lossy(&bytes).into_owned()))
}

fn show(verdict: &Verdict, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", terminal::json_line(verdict))?;
        return Ok(());
    }
    for finding in &verdict.findings {
        writeln!(
            out,
            "{}: line {}: {}  ({}, rule {})",
            finding.action,
            finding.line,
            harmless(&finding.excerpt),
            finding.class,
            harmless(&finding.rule)
        )?;
        writeln!(out, "    {}", harmless(&finding.reason))?;
        if let Some(hint) = &finding.hint {
            writeln!(out, "    instead: {}", harmless(hint))?;
        }
    }
    match verdict.action {
        Action::Deny => terminal::error("denied: a server would not run this"),
        Action::Flag => terminal::done("allowed; what is above would be noted in the audit"),
        Action::Allow => terminal::done("allowed"),
    }
    Ok(())
}

fn explain(policy: &Policy, rule: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let rules: Vec<_> = policy
        .explain()
        .into_iter()
        .filter(|explained| {
            rule.is_none_or(|wanted| explained.rule == wanted || explained.class.name() == wanted)
        })
        .collect();
    if let Some(wanted) = rule.filter(|_| rules.is_empty()) {
        bail!("there is no rule or class `{wanted}`; `redoma policy explain` lists them");
    }
    if json {
        writeln!(out, "{}", terminal::json_line(&rules))?;
        return Ok(());
    }
    if rule.is_some() {
        for explained in rules {
            let decided = match explained.decided {
                Decided::Class => "as its class",
                Decided::Rule => "by the rule itself",
                Decided::Profile => "by the profile",
            };
            let origin = match explained.origin {
                Origin::Shipped => "shipped",
                Origin::Profile => "the operator's",
                Origin::Libraries => "from the profile's libraries",
            };
            writeln!(
                out,
                "{} ({}, {origin}): {} {decided}",
                harmless(&explained.rule),
                explained.class,
                explained.action
            )?;
            writeln!(out, "    {}", harmless(&explained.reason))?;
            if let Some(hint) = explained.hint {
                writeln!(out, "    instead: {}", harmless(&hint))?;
            }
        }
        return Ok(());
    }
    writeln!(out, "{:<28} {:<17} {:<6} REASON", "RULE", "CLASS", "ACTION")?;
    for explained in rules {
        let (class, action) = (explained.class.name(), explained.action.to_string());
        let (rule, reason) = (harmless(&explained.rule), harmless(&explained.reason));
        writeln!(out, "{rule:<28} {class:<17} {action:<6} {reason}")?;
    }
    Ok(())
}
