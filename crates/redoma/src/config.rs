//! `redoma.toml`: profiles and what the operator allows. Unknown keys are refused, with the nearest known one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use redoma_engine::runtime::SYSTEM_DATA;
use redoma_model::{ByteSize, Layer, Profile, ProfilePatch, Span, UnknownLayer};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cli::{Global, LogFormat};

/// The file as written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    isolation: Isolation,
    #[serde(default)]
    engine: EngineSettings,
    #[serde(default)]
    server: ServerSettings,
    #[serde(default)]
    storage: StorageSettings,
    #[serde(default)]
    uploads: UploadSettings,
    #[serde(default)]
    profiles: BTreeMap<String, ProfilePatch>,
}

/// How the server is reached.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Address and port [127.0.0.1:8000]
    pub listen: Option<String>,
    /// `keys`, or `none` on an address that only this host reaches [keys]
    pub auth: Option<AuthSetting>,
    /// LibreChat's public key, PEM or JWKS, if it signs its requests
    pub librechat_jwt_key: Option<PathBuf>,
    /// `pretty` or `json` [pretty on a terminal, else json]
    pub log: Option<LogFormat>,
    /// The most bytes of a request that is no upload [8MiB]
    pub max_request: Option<ByteSize>,
    /// Connections at the same time [4096]
    pub connections: Option<usize>,
    /// How long programs may go on when the server is told to end [30s]
    pub shutdown_grace: Option<Span>,
    /// After how long a Jupyter kernel is forgotten that nobody uses [24h]
    pub kernel_idle: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthSetting {
    Keys,
    None,
}

/// How much is stored.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSettings {
    /// Bytes of all files of a session, earlier versions included [1GiB]
    pub session_quota: Option<ByteSize>,
    /// Files of a session [20000]
    pub session_files: Option<u64>,
    /// Bytes of all sessions of a user [10GiB]
    pub user_quota: Option<ByteSize>,
    /// How often sessions are looked through for those whose time is over [1m]
    pub sweep_every: Option<Span>,
}

/// Which files may come in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UploadSettings {
    /// Bytes of one file [150MiB]
    pub max_size: Option<ByteSize>,
    /// Extensions; `usual` stands for the default list, `*` for everything [usual]
    pub allow: Option<Vec<String>>,
}

/// How many programs run at once, and how many sandboxes wait for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// Programs at the same time [four per core, at least 8]
    pub concurrency: Option<usize>,
    /// Sessions with live variables at the same time; more, and those not used for longest lose theirs [64]
    pub kernels: Option<usize>,
    /// Sandboxes of each kind that wait at least [2]
    pub pool_floor: Option<usize>,
    /// And at most [32]
    pub pool_ceiling: Option<usize>,
    /// A waiting interpreter is replaced after so many sandboxes [2000]
    pub zygote_sandboxes: Option<u32>,
    /// Or when it is so old [1h]
    pub zygote_age: Option<Span>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Isolation {
    /// Layers that may be missing. Each is a wall less.
    #[serde(default)]
    allow_missing: Vec<String>,
}

/// Where this user's data is.
pub fn data_dir(global: &Global) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &global.data_dir {
        return std::path::absolute(folder).context("the data folder");
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM_DATA));
    }
    if let Some(folder) = std::env::var_os("XDG_DATA_HOME").filter(|folder| !folder.is_empty()) {
        return Ok(Path::new(&folder).join("redoma"));
    }
    match std::env::var_os("HOME").filter(|folder| !folder.is_empty()) {
        Some(home) => Ok(Path::new(&home).join(".local/share/redoma")),
        None => bail!("no home folder is known; say where to keep data with --data-dir"),
    }
}

impl Config {
    /// The named file, else the first of the usual ones, else the defaults.
    pub fn load(global: &Global, data_dir: &Path) -> anyhow::Result<Self> {
        let usual = [data_dir.join("redoma.toml"), PathBuf::from("/etc/redoma/redoma.toml")];
        let path = match &global.config {
            Some(path) => path,
            None => match usual.iter().find(|path| path.exists()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let config: Self = read(path)?;
        config.waived().with_context(|| format!("{}: isolation.allow_missing", path.display()))?;
        Ok(config)
    }

    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    pub fn storage(&self) -> &StorageSettings {
        &self.storage
    }

    pub fn uploads(&self) -> &UploadSettings {
        &self.uploads
    }

    /// All profiles, by name.
    pub fn profiles(&self) -> anyhow::Result<BTreeMap<String, Profile>> {
        let names = ["default"].into_iter().chain(self.profiles.keys().map(String::as_str));
        names.map(|name| Ok((name.to_owned(), self.profile(Some(name))?))).collect()
    }

    pub fn waived(&self) -> Result<Vec<Layer>, UnknownLayer> {
        self.isolation
            .allow_missing
            .iter()
            .map(|name| {
                let layer: Layer = name.parse()?;
                if layer.can_be_waived() { Ok(layer) } else { Err(UnknownLayer::NotWaivable(layer)) }
            })
            .collect()
    }

    /// The profile of this name or, if it looks like a path, in this file.
    pub fn profile(&self, name: Option<&str>) -> anyhow::Result<Profile> {
        let default = match self.profiles.get("default") {
            Some(patch) => Profile::default().with("default", patch).context("profile `default`")?,
            None => Profile::default(),
        };
        match name {
            None | Some("default") => Ok(default),
            Some(file)
                if file.contains('/') || Path::new(file).extension().is_some_and(|end| end == "toml") =>
            {
                let patch: ProfilePatch = read(Path::new(file))?;
                default.with(file, &patch).with_context(|| file.to_owned())
            }
            Some(name) => match self.profiles.get(name) {
                Some(patch) => default.with(name, patch).with_context(|| format!("profile `{name}`")),
                None => bail!("{}", self.no_such_profile(name)),
            },
        }
    }

    fn no_such_profile(&self, name: &str) -> String {
        let known: Vec<_> = ["default"].into_iter().chain(self.profiles.keys().map(String::as_str)).collect();
        let nearest = nearest(name, known.iter().copied())
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        format!(
            "there is no profile `{name}`{nearest} (known: {}; a file needs a / or .toml)",
            known.join(", ")
        )
    }
}

/// Reads a TOML file; an error is one line with file, line and what to do.
fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read {shown}"))?;
    toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        anyhow::anyhow!("{shown}:{line}: {}", with_suggestion(error.message()))
    })
}

/// Serde's "unknown field `x`, expected one of `a`, `b`" with the likely one first.
fn with_suggestion(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else { return message.to_owned() };
    let Some((unknown, expected)) = rest.split_once('`') else { return message.to_owned() };
    let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("unknown key `{unknown}`; did you mean `{near}`?"),
        None => format!("unknown key `{unknown}`; the keys here are {}", known.join(", ")),
    }
}

/// The candidate that is at most a third of its letters away.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| distance * 3 <= candidate.len().max(3))
        .map(|(_, candidate)| candidate)
}

/// How many letters must be changed, added or dropped.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| with_suggestion(error.message()))
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let error = parse("[profiles.a.limits]\nwal = \"3s\"").unwrap_err();
        assert_eq!(error, "unknown key `wal`; did you mean `wall`?");
        let error = parse("[profile.a]\nruntime = \"x\"").unwrap_err();
        assert_eq!(error, "unknown key `profile`; did you mean `profiles`?");
        let error = parse("[profiles.a]\nnetwork = true").unwrap_err();
        assert_eq!(
            error,
            "unknown key `network`; the keys here are runtime, limits, preload, last_value, retention, freeze_after, \
             reclaim_after, drop_after, checkpoints, undo"
        );
    }

    #[test]
    fn profiles_build_on_the_default_one() {
        let config =
            parse("[profiles.default.limits]\npids = 64\n[profiles.quick.limits]\nwall = \"2s\"").unwrap();
        let quick = config.profile(Some("quick")).unwrap();
        assert_eq!((quick.limits.pids, quick.limits.wall.to_string().as_str()), (64, "2s"));
        let error = config.profile(Some("quik")).unwrap_err().to_string();
        assert!(error.contains("did you mean `quick`"), "{error}");
    }

    #[test]
    fn only_layers_that_can_be_missing_can_be_waived() {
        let waived =
            |name: &str| parse(&format!("[isolation]\nallow_missing = [\"{name}\"]")).unwrap().waived();
        assert_eq!(waived("landlock"), Ok(vec![Layer::Landlock]));
        assert!(waived("seccomp").unwrap_err().to_string().contains("can't be waived"));
        assert!(waived("sekkomp").unwrap_err().to_string().contains("not a layer"));
    }
}
