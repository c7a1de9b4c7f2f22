//! `redoma serve`: the wiring of store, engine and server, from the first lock to an orderly end.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use redoma_engine::interpreter::{FileTypes, Interpreter, InterpreterParts, Sweeper};
use redoma_engine::readers::Readers;
use redoma_engine::{Engine, Host, Level, Runtime, libraries, pressure};
use redoma_model::{ByteSize, Layer, Owner, Role};
use redoma_server::{App, ConnectionLimits, KernelLimits, Listening, Reload, ServerConfig, Versions};
use redoma_store::{KeyRecord, NewKey, OnlyOne, Secret, Store};

use crate::cli::{Global, LogFormat, ServeArguments};
use crate::config::{AuthSetting, Config, data_dir};
use crate::notify::{self, Notifier, Watchdog};
use crate::reload::Reloader;
use crate::{audit, engine, systemd_scope, terminal};

const DEFAULT_PORT: u16 = 8000;
const DEFAULT_KERNELS: usize = 64;
/// The admin key that was made on the first start.
const ADMIN_KEY: &str = "admin.key";
/// Whose things an admin key opens on the chat routes: the same, whichever admin key it is.
pub const ADMIN_CLIENT: &str = "admin";
/// What says of a key that it came from the environment.
const CHOSEN: &str = "REDOMA_API_KEY";
/// A key that somebody chose must be long enough not to be guessed.
const SHORTEST_KEY: usize = 16;

pub fn serve(global: &Global, arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let data_dir = data_dir(global)?;
    let config = Config::load(global, &data_dir)?;
    let address = address(arguments.listen.as_deref().or(config.server().listen.as_deref()))?;
    let no_auth = arguments.no_auth || config.server().auth == Some(AuthSetting::None);
    if no_auth && !address.ip().is_loopback() {
        bail!(
            "{address} can be reached from outside of this host, and without keys anybody there could run programs; \
             listen on 127.0.0.1, or use keys"
        );
    }
    if Host::detect().hierarchy.is_err() && !config.waived()?.contains(&Layer::Cgroup) {
        systemd_scope::try_to_enter();
    }
    std::fs::create_dir_all(&data_dir).with_context(|| format!("can't make {}", data_dir.display()))?;
    let _only_one = lock(&data_dir)?;
    log(arguments.log.or(config.server().log));
    let notifier = Notifier::from_environment();
    notify::be_spared();

    // While there is a single thread: the backend's janitor is a copy of this process.
    let profile = config.profile(None)?;
    let supply = engine::supply(config.engine())?;
    let concurrency = engine::concurrency(config.engine())?;
    let profiles = config.book()?;
    let native = engine::native(&config, &data_dir, &profile, supply, &[])?;
    let runtime = Runtime::find(&profile.runtime, &data_dir)?;
    let versions = Versions {
        libraries: Arc::new(libraries(&runtime)),
        python: runtime.manifest().map(|manifest| manifest.python_version.clone()),
        node: runtime.manifest().and_then(|manifest| manifest.node_version.clone()),
    };
    drop(runtime);

    let store = Arc::new(engine::store(&config, &data_dir)?);
    let removed = store.recover().context("the store could not be put in order")?;
    if removed > 0 {
        tracing::warn!(files = removed, "removed what an interrupted upload or run had left");
    }
    let admin = if no_auth { None } else { admin_key(&store, &data_dir)? };
    let audit = audit::open(config.audit(), &data_dir)?;
    let interpreter = Interpreter::new(InterpreterParts {
        engine: Engine::new(Box::new(native), concurrency),
        store: Arc::clone(&store),
        profiles,
        file_types: config.uploads().allow.as_deref().map_or_else(FileTypes::default, FileTypes::only),
        most_upload: config.uploads().max_size.unwrap_or(ByteSize::mib(150)).0,
        most_kernels: config.engine().kernels.unwrap_or(DEFAULT_KERNELS),
        audit: audit.clone(),
        readers: Some(Readers::new("/proc/self/exe".into())),
        tell: |error| tracing::error!(%error, "results could not be stored"),
    });
    let settings = ServerConfig {
        concurrency,
        versions,
        reload: Reload::new({
            let reloader = Reloader::new(global, &data_dir, config.clone());
            move |interpreter| reloader.reload(interpreter)
        }),
        ..server_config(&config, arguments, &data_dir, no_auth)?
    };
    let app = App::new(interpreter, settings)?;
    let every = config.storage().sweep_every.map_or(Duration::from_mins(1), |every| every.0);
    let sweeper = Sweeper::start(store, every, |swept| match swept {
        Ok(swept) if swept.sessions > 0 => {
            tracing::info!(
                sessions = swept.sessions,
                bytes = swept.bytes,
                "removed what was not used any more"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "old sessions could not be removed"),
    })?;

    let caretaker = Sweeper::of_kernels(Arc::clone(app.interpreter()))?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Each program that runs or waits, for its turn or for a tool, has one.
        .max_blocking_threads(concurrency.running + concurrency.waiting + 1536)
        // A user's answer waits for these threads, beside the programs of others.
        .on_thread_start(redoma_jail::take_short_turns)
        .build()?;
    let watchdog = watchdog(&app, &runtime, notifier.clone())?;
    let result = runtime.block_on(listen(Arc::clone(&app), address, admin, no_auth, notifier));
    drop((sweeper, caretaker, watchdog));
    app.interpreter().end_kernels();
    runtime.shutdown_timeout(Duration::from_secs(5));
    // The engine ends its sandboxes here.
    drop(app);
    if let Some(audit) = audit {
        audit::close(&audit)?;
    }
    tracing::info!("stopped");
    result
}

/// What the configuration and the command line say about the server.
fn server_config(
    config: &Config,
    arguments: &ServeArguments,
    data_dir: &Path,
    no_auth: bool,
) -> anyhow::Result<ServerConfig> {
    let (settings, default) = (config.server(), ServerConfig::default());
    let most_json = settings.max_request.and_then(|size| usize::try_from(size.0).ok());
    Ok(ServerConfig {
        is_open: no_auth,
        librechat_jwt_key: arguments.librechat_jwt_key.clone().or(settings.librechat_jwt_key.clone()),
        rates_file: Some(data_dir.join("rates.json")),
        most_json: most_json.unwrap_or(default.most_json),
        connections: ConnectionLimits {
            in_all: settings.connections.unwrap_or(default.connections.in_all).clamp(1, 100_000),
            per_address: settings
                .connections_per_address
                .unwrap_or(default.connections.per_address)
                .clamp(1, 100_000),
        },
        grace: settings.shutdown_grace.map_or(default.grace, |grace| grace.0),
        kernels: KernelLimits {
            idle: settings.kernel_idle.map_or(default.kernels.idle, |idle| idle.0),
            ..default.kernels
        },
        metrics: settings.metrics_access()?,
        trusted_proxies: settings.trusted_proxies()?,
        telemetry: config.telemetry().config()?,
        ..default
    })
}

/// Tells systemd that the server is alive, if it wants to know.
fn watchdog(
    app: &Arc<App>,
    runtime: &tokio::runtime::Runtime,
    notifier: Notifier,
) -> anyhow::Result<Option<Watchdog>> {
    let (interpreter, handle) = (Arc::clone(app.interpreter()), runtime.handle().clone());
    let check = move |within| {
        notify::runs_tasks(&handle, within)?;
        interpreter.stuck().map_or(Ok(()), Err)
    };
    Ok(Watchdog::start(notifier, Box::new(check))?)
}

async fn listen(
    app: Arc<App>,
    address: SocketAddr,
    admin: Option<AdminKey>,
    no_auth: bool,
    notifier: Notifier,
) -> anyhow::Result<ExitCode> {
    use tokio::signal::unix::{SignalKind, signal};
    let listening = Listening::on(address, &app).await?;
    let address = listening.address();
    let (preparing, told) = (Arc::clone(&app), notifier.clone());
    tokio::spawn(async move {
        loop {
            let app = Arc::clone(&preparing);
            match tokio::task::spawn_blocking(move || app.interpreter().prepare()).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    tracing::error!(%error, "no sandboxes wait for programs yet; `redoma doctor` tells more");
                }
                Err(_) => return,
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        preparing.set_ready();
        told.status("ready: sandboxes wait for programs");
        tracing::info!("ready: sandboxes wait for programs");
    });
    if let Some(audit) = app.interpreter().audit().cloned() {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(audit::LOG_HEAD).await;
                audit::log_head(&audit);
            }
        });
    }
    tokio::spawn(tell_pressure(Arc::clone(&app), notifier.clone()));
    // Before anybody is told that there is something to end.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (reloading, told) = (Arc::clone(&app), notifier.clone());
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let app = Arc::clone(&reloading);
            told.reloading();
            // What came of it is in the log.
            let _ = tokio::task::spawn_blocking(move || app.reload(None)).await;
            told.ready(&format!("serving on {address}"));
        }
    });
    welcome(address, admin, no_auth);
    notifier.ready(&format!("serving on {address}; sandboxes are being made"));
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        notifier.stopping();
        // Whoever asks twice does not want to wait.
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            std::process::exit(1);
        });
    };
    listening.serve(app, stop).await;
    Ok(ExitCode::SUCCESS)
}

/// Says in the log how hard it is for the host, when that changes.
async fn tell_pressure(app: Arc<App>, notifier: Notifier) {
    let Some(pressure) = app.interpreter().pressure().map(Arc::clone) else { return };
    drop(app);
    if !pressure.tells_stalls() {
        tracing::info!(
            "this kernel does not tell of stalls (no /proc/pressure); memory and processes are looked at"
        );
    }
    let mut known = Level::Normal;
    loop {
        tokio::time::sleep(pressure::EVERY).await;
        let level = pressure.level();
        if level == known {
            continue;
        }
        known = level;
        let seen = pressure.last();
        let (mib, pids) = (seen.available.map(|bytes| bytes >> 20), seen.pids_percent);
        let (level, stalled) = (level.name(), seen.memory_some);
        tracing::warn!(
            level,
            available_mib = mib,
            pids_percent = pids,
            stalled_percent = stalled,
            "pressure"
        );
        notifier.status(&format!("pressure on the host: {level}"));
    }
}

/// For a person at a terminal; where the output goes to a log, one line of it.
fn welcome(address: SocketAddr, admin: Option<AdminKey>, no_auth: bool) {
    tracing::info!(%address, "listening");
    if !std::io::stderr().is_terminal() {
        return;
    }
    terminal::done(&format!("Redoma serves on http://{address}   (reference: http://{address}/docs)"));
    match admin {
        Some(AdminKey::Made { secret, path }) => {
            terminal::note(&format!("admin key, shown this once and kept in {}:", path.display()));
            terminal::note(&format!("    {}", secret.reveal()));
        }
        Some(AdminKey::Kept { path }) => terminal::note(&format!("the admin key is in {}", path.display())),
        None if no_auth => terminal::warning("no keys: every program on this host can run code here"),
        None => {}
    }
}

fn address(listen: Option<&str>) -> anyhow::Result<SocketAddr> {
    let Some(text) = listen else {
        return Ok((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
    };
    let text = text.replace("localhost", "127.0.0.1");
    let by_address = || text.parse::<IpAddr>().ok().map(|ip| (ip, DEFAULT_PORT).into());
    let by_port =
        || text.trim_start_matches(':').parse().ok().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    text.parse().ok().or_else(by_address).or_else(by_port).with_context(|| {
        format!("`{text}` is not an address to listen on; write one such as 127.0.0.1:8000 or [::1]:8000")
    })
}

/// Two servers on one data folder would each think that the other's unfinished files are a crash's.
pub fn lock(data_dir: &Path) -> anyhow::Result<OnlyOne> {
    let path = data_dir.join("serve.lock");
    let held = OnlyOne::hold(&path).with_context(|| format!("can't write {}", path.display()))?;
    held.with_context(|| {
        format!("a server is running on {} already; use another --data-dir, or stop it", data_dir.display())
    })
}

fn log(format: Option<LogFormat>) {
    let is_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if is_terminal { LogFormat::Pretty } else { LogFormat::Json });
    let level = std::env::var("REDOMA_LOG").ok().and_then(|level| level.parse().ok());
    let builder = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(tracing::Level::INFO))
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Pretty => builder.with_ansi(is_terminal).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).init(),
    }
}

enum AdminKey {
    Made { secret: Secret, path: PathBuf },
    Kept { path: PathBuf },
}

/// The first key: from the environment, or made on the first start.
fn admin_key(store: &Store, data_dir: &Path) -> anyhow::Result<Option<AdminKey>> {
    let owner = Owner { client: ADMIN_CLIENT.to_owned(), user: None };
    let (role, profile) = (Role::Admin, None::<String>);
    let new = |label: &str| NewKey {
        role,
        owner: owner.clone(),
        label: label.parse().ok(),
        profile: profile.clone(),
    };
    if let Some(chosen) = std::env::var("REDOMA_API_KEY").ok().filter(|key| !key.is_empty()) {
        if chosen.len() < SHORTEST_KEY {
            bail!(
                "REDOMA_API_KEY is too short: {SHORTEST_KEY} characters at least, such as `openssl rand -hex 32` gives"
            );
        }
        let secret = Secret::new(chosen);
        let current = match store.key(&secret)? {
            Some(known) => known,
            None => store.add_key_with(new(CHOSEN), &secret)?,
        };
        // One that was chosen before does not count any more.
        let is_former = |key: &KeyRecord| {
            key.id != current.id && key.revoked_at.is_none() && key.label.as_deref() == Some(CHOSEN)
        };
        for former in store.keys()?.iter().filter(|key| is_former(key)) {
            store.revoke_key(&former.id)?;
        }
        return Ok(None);
    }
    let path = data_dir.join(ADMIN_KEY);
    if store.has_admin()? {
        return Ok(path.exists().then_some(AdminKey::Kept { path }));
    }
    let secret = Secret::generate()?;
    // The file first: a key that is known to the server and to nobody else would be of no use.
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{}", secret.reveal()).and_then(|()| file.sync_all()));
    written.with_context(|| format!("can't write {}", path.display()))?;
    store.add_key_with(new("made on the first start"), &secret)?;
    Ok(Some(AdminKey::Made { secret, path }))
}
