//! `redoma.toml`: profiles and what the operator allows. Unknown keys are refused, with the nearest known one.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the file as written |
//! | `telemetry.rs` | where traces go |
//! | `profiles.rs`, `shipped.toml` | profiles, layer by layer |
//! | `command.rs`, `template.toml` | `redoma config init`, `check`, `show` |
//! | `suggestion.rs` | what somebody may have meant |

pub mod command;
mod profiles;
mod suggestion;
mod telemetry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use redoma_engine::runtime::SYSTEM_DATA;
use redoma_model::{AuditSettings, ByteSize, Layer, ProfileAssignment, ProfilePatch, Span, UnknownLayer};
use redoma_server::{MetricsAccess, Network};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cli::{Global, LogFormat};
use suggestion::with_suggestion;
use telemetry::TelemetrySettings;

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
    audit: AuditSettings,
    #[serde(default)]
    telemetry: TelemetrySettings,
    #[serde(default)]
    profiles: BTreeMap<String, ProfilePatch>,
    /// Who has which profile; the first that fits.
    #[serde(default)]
    assign: Vec<ProfileAssignment>,
    /// Where this was read, and what stood there.
    #[serde(skip)]
    source: Option<(PathBuf, String)>,
}

/// How the server is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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
    /// Connections of one address before a key was shown [128]
    pub connections_per_address: Option<usize>,
    /// How long programs may go on when the server is told to end [30s]
    pub shutdown_grace: Option<Span>,
    /// Reverse proxies, as addresses or networks, whose X-Forwarded-For is believed [none]
    pub trusted_proxies: Option<Vec<String>>,
    /// After how long a Jupyter kernel is forgotten that nobody uses [24h]
    pub kernel_idle: Option<Span>,
    /// Who may read /metrics: `keys` (admin keys, and `metrics_token`), `open` (everybody) or `off` [keys]
    pub metrics: Option<MetricsSetting>,
    /// A token for /metrics and for nothing else
    pub metrics_token: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthSetting {
    Keys,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsSetting {
    Keys,
    Open,
    Off,
}

impl ServerSettings {
    pub fn trusted_proxies(&self) -> anyhow::Result<Vec<Network>> {
        let written = self.trusted_proxies.iter().flatten();
        written.map(|text| text.parse().context("server.trusted_proxies")).collect()
    }

    pub fn metrics_access(&self) -> anyhow::Result<MetricsAccess> {
        match (self.metrics, &self.metrics_token) {
            (Some(MetricsSetting::Open), _) => Ok(MetricsAccess::Open),
            (Some(MetricsSetting::Off), _) => Ok(MetricsAccess::Off),
            (_, None) => Ok(MetricsAccess::Keys),
            (_, Some(token)) if token.len() < 16 => {
                bail!(
                    "server.metrics_token is too short: 16 characters at least, such as `openssl rand -hex 16` gives"
                )
            }
            (_, Some(token)) => Ok(MetricsAccess::Token(token.clone())),
        }
    }
}

/// How much is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSettings {
    /// Bytes of all files of a session, earlier versions included [1GiB]
    pub session_quota: Option<ByteSize>,
    /// Files of a session [20000]
    pub session_files: Option<u64>,
    /// Bytes of all sessions of a user: files, and records of executions [10GiB]
    pub user_quota: Option<ByteSize>,
    /// Files of all sessions of a user, earlier versions included [200000]
    pub user_files: Option<u64>,
    /// Sessions of a user [10000]
    pub user_sessions: Option<u64>,
    /// How often sessions are looked through for those whose time is over [1m]
    pub sweep_every: Option<Span>,
}

/// Which files may come in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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
        Self::read(path)
    }

    /// This file, all of it checked.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let (mut config, text): (Self, String) = read_with_text(path)?;
        config.source = Some((path.to_owned(), text));
        config.waived().with_context(|| format!("{}: isolation.allow_missing", path.display()))?;
        Ok(config)
    }

    /// The file that this was read from.
    pub fn path(&self) -> Option<&Path> {
        self.source.as_ref().map(|(path, _)| path.as_path())
    }

    /// Whether there is nothing at all in its file.
    pub fn is_empty(&self) -> bool {
        self.source.as_ref().is_none_or(|(_, text)| text.trim().is_empty())
    }

    pub fn audit(&self) -> &AuditSettings {
        &self.audit
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

    pub fn telemetry(&self) -> &TelemetrySettings {
        &self.telemetry
    }

    pub fn uploads(&self) -> &UploadSettings {
        &self.uploads
    }

    /// The sections that only count when the server starts, and are not as in the other.
    pub fn sections_that_differ(&self, other: &Self) -> Vec<String> {
        let sections = [
            ("isolation", self.isolation == other.isolation),
            ("engine", self.engine == other.engine),
            ("server", self.server == other.server),
            ("storage", self.storage == other.storage),
            ("audit", self.audit == other.audit),
            ("uploads", self.uploads == other.uploads),
            ("telemetry", self.telemetry == other.telemetry),
        ];
        sections.iter().filter(|(_, is_same)| !is_same).map(|(name, _)| (*name).to_owned()).collect()
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
}

/// The most bytes of a configuration.
const LONGEST: u64 = 4 << 20;

/// Reads a TOML file; an error is one line with file, line and what to do.
fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    read_with_text(path).map(|(value, _)| value)
}

fn read_with_text<T: DeserializeOwned>(path: &Path) -> anyhow::Result<(T, String)> {
    let shown = path.display();
    let about = std::fs::metadata(path).with_context(|| format!("can't read {shown}"))?;
    if !about.is_file() || about.len() > LONGEST {
        bail!("{shown} is not a file, or longer than 4 MiB");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("can't read {shown}"))?;
    let parsed = toml::from_str(&text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        anyhow::anyhow!("{shown}:{line}: {}", with_suggestion(error.message()))
    })?;
    Ok((parsed, text))
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
        let error = parse("[profiles.a]\nquux = true").unwrap_err();
        assert!(
            error.starts_with("unknown key `quux`; the keys here are description, for_users, "),
            "{error}"
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
    fn metrics_take_a_key_unless_the_operator_says_otherwise() {
        let access = |text: &str| parse(&format!("[server]\n{text}")).unwrap().server().metrics_access();
        let token = "0123456789abcdef";
        assert_eq!(access("").unwrap(), MetricsAccess::Keys);
        assert_eq!(access("metrics = \"open\"").unwrap(), MetricsAccess::Open);
        assert_eq!(access("metrics = \"off\"").unwrap(), MetricsAccess::Off);
        let with_token = access(&format!("metrics_token = \"{token}\"")).unwrap();
        assert_eq!(with_token, MetricsAccess::Token(token.to_owned()));
        assert!(access("metrics_token = \"short\"").is_err());
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
