//! An engine as the configuration says.

use std::path::Path;

use anyhow::{Context, bail};
use redoma_engine::{Concurrency, InsideFiles, Native, NativeConfig, PressureLimits, Supply};
use redoma_model::{ByteSize, Profile};
use redoma_store::{Quota, Store};
use redoma_zygote::inside;

use crate::config::{Config, EngineSettings};

/// Starts the native backend. Must be called while this process has a single thread.
pub fn native(
    config: &Config,
    data_dir: &Path,
    profile: &Profile,
    supply: Supply,
    languages: &[&str],
) -> anyhow::Result<Native> {
    let native = Native::start(NativeConfig {
        data_dir: data_dir.to_owned(),
        waived: config.waived()?,
        profile: profile.clone(),
        inside: InsideFiles {
            program: std::env::current_exe().context("this program's own path")?,
            python_library: inside::PYTHON_LIBRARY,
            zygote: inside::ZYGOTE,
            tools: inside::TOOLS,
            kernel: inside::KERNEL,
            prewarm: inside::PREWARM,
        },
        supply,
        pressure: PressureLimits::default(),
        languages: languages.iter().map(|id| (*id).to_owned()).collect(),
    })?;
    Ok(native)
}

/// The store in the data folder, with the configuration's quotas.
pub fn store(config: &Config, data_dir: &Path) -> anyhow::Result<Store> {
    let settings = config.storage();
    let quota = Quota {
        session_bytes: settings.session_quota.unwrap_or(ByteSize::gib(1)).0,
        session_files: settings.session_files.unwrap_or(20_000),
        owner_bytes: settings.user_quota.unwrap_or(ByteSize::gib(10)).0,
        owner_files: settings.user_files.unwrap_or(200_000),
        owner_sessions: settings.user_sessions.unwrap_or(10_000).max(1),
    };
    std::fs::create_dir_all(data_dir).with_context(|| format!("can't make {}", data_dir.display()))?;
    Ok(Store::open(data_dir, quota)?)
}

pub fn supply(settings: &EngineSettings) -> anyhow::Result<Supply> {
    let default = Supply::default();
    let supply = Supply {
        floor: settings.pool_floor.unwrap_or(default.floor),
        ceiling: settings.pool_ceiling.unwrap_or(default.ceiling),
        zygote_sandboxes: settings.zygote_sandboxes.unwrap_or(default.zygote_sandboxes).max(1),
        zygote_age: settings.zygote_age.map_or(default.zygote_age, |age| age.0),
    };
    if supply.floor > supply.ceiling {
        bail!("engine.pool_floor ({}) is above engine.pool_ceiling ({})", supply.floor, supply.ceiling);
    }
    Ok(supply)
}

pub fn concurrency(settings: &EngineSettings) -> anyhow::Result<Concurrency> {
    let default = Concurrency::default();
    match settings.concurrency {
        Some(0) => bail!("engine.concurrency is 0: nothing could run"),
        Some(running) => Ok(Concurrency { running, ..default }),
        None => Ok(default),
    }
}
