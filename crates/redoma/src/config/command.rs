//! `redoma config`: write a file in which everything is explained, check one, show what holds.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use redoma_engine::interpreter::{Because, GovernedProfile};
use redoma_engine::{Runtime, libraries};
use redoma_model::{Owner, Principal, Role};

use super::profiles::flat;
use super::suggestion::nearest;
use super::{Config, data_dir};
use crate::cli::{ConfigCommand, Global};
use crate::engine;
use crate::terminal::{self, harmless};

/// The file that `init` writes.
const TEMPLATE: &str = include_str!("template.toml");

pub fn config(global: &Global, command: ConfigCommand) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    match command {
        ConfigCommand::Init { stdout: true } => {
            std::io::stdout().write_all(TEMPLATE.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        ConfigCommand::Init { stdout: false } => {
            init(&global.config.clone().unwrap_or_else(|| data_dir.join("redoma.toml")))
        }
        ConfigCommand::Check { file } => Ok(check(global, &data_dir, file.as_deref())),
        ConfigCommand::Show { profile, key, user, client, json } => {
            let config = Config::load(global, &data_dir)?;
            let book = config.book()?;
            let holder = holder(&config, &data_dir, key.as_deref(), user, client)?;
            let (governed, why) = match (&profile, &holder) {
                (None, None) => (book.by_name("default"), "named by nobody in particular"),
                (Some(name), _) => {
                    // Says what there is, if there is none of this name.
                    config.profile(Some(name))?;
                    (book.by_name(name), "named")
                }
                (None, Some(holder)) => {
                    let (governed, because) = book.of(holder)?;
                    (Some(governed), reason(because))
                }
            };
            let governed = governed
                .context("a profile's own file can't be shown; name a profile of the configuration")?;
            show(governed, why, json)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn init(path: &Path) -> anyhow::Result<ExitCode> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    match file.and_then(|mut file| file.write_all(TEMPLATE.as_bytes())) {
        Ok(()) => {
            terminal::done(&format!(
                "wrote {}; nothing in it is in force until you uncomment it",
                path.display()
            ));
            terminal::note("`redoma config check` checks it; a running server takes it with SIGHUP");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already; `redoma config init --stdout` prints a new one", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("can't write {}", path.display())),
    }
}

fn check(global: &Global, data_dir: &Path, file: Option<&Path>) -> ExitCode {
    let config = match file {
        Some(file) => Config::read(file),
        None => Config::load(global, data_dir),
    };
    let checked = config.and_then(|config| {
        config.book()?;
        check_for_start(&config)?;
        Ok(config)
    });
    match checked {
        Ok(config) => {
            let shown = config.path().map_or_else(
                || "there is no file; the defaults hold (`redoma config init` writes one)".to_owned(),
                |path| format!("{} is sound", path.display()),
            );
            terminal::done(&shown);
            tell_missing_libraries(&config, data_dir);
            ExitCode::SUCCESS
        }
        Err(error) => {
            terminal::error(&format!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

/// A list of libraries with a name in it that nothing has is not wrong, and probably not meant.
fn tell_missing_libraries(config: &Config, data_dir: &Path) {
    for profile in config.profiles().into_iter().flatten().map(|(_, profile)| profile) {
        let Ok(runtime) = Runtime::find(&profile.runtime, data_dir) else { return };
        let there = libraries(&runtime);
        let missing: Vec<_> = profile
            .libraries
            .listed()
            .into_iter()
            .flatten()
            .filter(|name| !there.contains_key(*name))
            .collect();
        for name in missing.into_iter().filter(|_| !there.is_empty()) {
            let near = nearest(name, there.keys().map(String::as_str))
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            terminal::warning(&format!(
                "profile `{}`: the runtime has no library `{name}`{near}",
                profile.name
            ));
        }
    }
}

/// What only counts when a server starts.
pub fn check_for_start(config: &Config) -> anyhow::Result<()> {
    engine::supply(config.engine())?;
    engine::concurrency(config.engine())?;
    config.server().metrics_access()?;
    config.server().trusted_proxies()?;
    config.telemetry().config()?;
    Ok(())
}

/// Somebody with this key, or of this name.
fn holder(
    config: &Config,
    data_dir: &Path,
    key: Option<&str>,
    user: Option<String>,
    client: Option<String>,
) -> anyhow::Result<Option<Principal>> {
    let Some(key) = key else {
        if user.is_none() && client.is_none() {
            return Ok(None);
        }
        let owner = Owner { client: client.unwrap_or_default(), user };
        return Ok(Some(Principal::without_key(Role::Client, owner, false)));
    };
    let store = engine::store(config, data_dir)?;
    let record = store.keys()?.into_iter().find(|record| record.id.as_str() == key);
    let record = record.with_context(|| format!("there is no key `{key}`; `redoma keys list` shows them"))?;
    let mut owner = record.owner;
    if record.role != Role::User {
        owner.user = user;
    } else if user.is_some() && user != owner.user {
        bail!("this key is for the user `{}` alone", owner.user.unwrap_or_default());
    }
    let holder = Principal::without_key(record.role, owner, record.role == Role::User);
    Ok(Some(Principal { profile: record.profile, key: Some(record.id), ..holder }))
}

fn reason(because: Because) -> &'static str {
    match because {
        Because::OfAssignment => "an assignment says so",
        Because::OfKey => "the key is bound to it",
        Because::ItIsTheDefault => "nothing else is said",
    }
}

fn show(governed: &GovernedProfile, why: &str, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let profile = &governed.profile;
    let values = flat(&toml::Value::try_from(profile)?);
    let from = |key: &str| governed.origins.get(key).map_or("built in", String::as_str);
    if json {
        let values: BTreeMap<_, _> = values
            .iter()
            .filter(|(key, _)| *key != "name")
            .map(|(key, value)| (key, serde_json::json!({ "value": value, "from": from(key) })))
            .collect();
        let shown = serde_json::json!({ "profile": profile.name, "because": why, "values": values });
        writeln!(out, "{}", terminal::json_line(&shown))?;
        return Ok(());
    }
    let (name, description) = (harmless(&profile.name), harmless(&profile.description));
    writeln!(out, "profile `{name}` ({}): {description}\n", harmless(why))?;
    for (key, value) in values.iter().filter(|(key, _)| *key != "name" && *key != "description") {
        let value = if value.chars().count() > 40 {
            format!("{}…", value.chars().take(39).collect::<String>())
        } else {
            value.clone()
        };
        let (key, value, from) = (harmless(key), harmless(&value), harmless(from(key)));
        writeln!(out, "{key:<28} {value:<40} {from}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redoma_model::Profile;

    use super::*;

    /// The template with every key in force.
    fn uncommented() -> String {
        let is_key = |line: &&str| {
            line.strip_prefix('#').is_some_and(|rest| {
                rest.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '[')
            })
        };
        let lines = TEMPLATE.lines().map(|line| if is_key(&line) { &line[1..] } else { line });
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    #[test]
    fn the_template_shows_what_holds_anyway() {
        let empty: Config = toml::from_str(TEMPLATE).unwrap();
        assert_eq!(empty.profile(None).unwrap(), Profile::default());
        let full: Config = toml::from_str(&uncommented()).unwrap();
        let mut shown = full.profile(None).unwrap();
        let default = Profile::default();
        // These have no default that could be written down, or a long one.
        assert!(shown.prompt.take().is_some() && shown.limits.io.take().is_some());
        assert_eq!(
            shown.preload,
            default.preload[1..]
                .iter()
                .map(|set| set[default.preload[0].len()..].to_vec())
                .collect::<Vec<_>>()
        );
        shown.preload.clone_from(&default.preload);
        shown.policy = default.policy.clone();
        assert_eq!(shown, default);
        assert_eq!(full.audit(), empty.audit());
        assert_eq!(full.assign.len(), 1);
        full.book().unwrap();
    }

    #[test]
    fn the_template_has_every_key() {
        for section in [
            "isolation",
            "server",
            "storage",
            "uploads",
            "engine",
            "audit",
            "telemetry",
            "profiles.default",
            "profiles.default.limits",
            "profiles.default.rates.user",
            "profiles.default.policy",
        ] {
            let error = toml::from_str::<Config>(&format!("[{section}]\nzzzzzzzzzz = 1")).unwrap_err();
            let known = error.message().split('`').skip(3).step_by(2);
            let start =
                TEMPLATE.find(&format!("[{section}]\n")).unwrap_or_else(|| panic!("[{section}] is missing"));
            let text = &TEMPLATE[start..];
            let text = &text[..text[1..].find("\n[").map_or(text.len(), |end| end + 1)];
            for key in known.filter(|key| !["limits", "rates", "policy", "rule"].contains(key)) {
                assert!(text.contains(&format!("\n#{key} = ")), "{section}.{key} is missing");
            }
        }
    }

    #[test]
    fn the_reference_is_the_template() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once("```toml\n").unwrap();
        let (block, after) = rest.split_once("```\n").unwrap();
        if std::env::var_os("REDOMA_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{before}```toml\n{TEMPLATE}```\n{after}")).unwrap();
        } else {
            assert_eq!(block, TEMPLATE, "REDOMA_UPDATE_GOLDEN=1 cargo nextest run -p redoma writes it anew");
        }
    }
}
