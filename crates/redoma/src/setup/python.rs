//! The Python environment inside sandboxes: a virtual environment from the lock file, moved to where it will be seen.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use redoma_engine::runtime::{PLOTS_MODULE, PYTHON};

use crate::terminal::Progress;

/// Every package with its version and hashes.
pub const LOCK: &str = include_str!("../../../../runtimes/base/requirements.lock");

/// What makes `show` leave pictures.
const PLOTS: &str = include_str!("../../../../runtimes/base/redoma_plots.py");

const CANDIDATES: [&str; 2] = ["/usr/bin/python3", "/usr/local/bin/python3"];
const OLDEST: (u32, u32) = (3, 11);

/// An interpreter that sandboxes can see.
#[derive(Debug)]
pub struct Python {
    pub path: PathBuf,
    pub version: String,
}

/// The interpreter to build on: it must be below `/usr`, which is what sandboxes get to see of the host.
pub fn find(wanted: Option<&Path>) -> anyhow::Result<Python> {
    let candidates: Vec<PathBuf> = match wanted {
        Some(path) => vec![path.to_owned()],
        None => CANDIDATES.iter().map(PathBuf::from).collect(),
    };
    let Some(path) = candidates.iter().find(|path| path.exists()) else {
        let tried: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        bail!("no Python found ({}); `apt-get install python3 python3-venv`", tried.join(", "));
    };
    let real = path.canonicalize().with_context(|| path.display().to_string())?;
    if !real.starts_with("/usr") {
        bail!(
            "{} is at {}, which sandboxes don't see; use one below /usr, such as Debian's python3",
            path.display(),
            real.display()
        );
    }
    let script = "import sys, venv, ensurepip; print('%d.%d.%d' % sys.version_info[:3])";
    let output = Command::new(&real)
        .args(["-I", "-c", script])
        .output()
        .with_context(|| real.display().to_string())?;
    if !output.status.success() {
        bail!("{} can't make virtual environments; `apt-get install python3-venv`", real.display());
    }
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = version.split('.').filter_map(|part| part.parse().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        bail!("{} is Python {version}; {}.{} or newer is needed", real.display(), OLDEST.0, OLDEST.1);
    }
    Ok(Python { path: real, version })
}

/// Makes the environment in `folder`.
pub fn build(python: &Python, folder: &Path) -> anyhow::Result<()> {
    let step = Progress::start(&format!("making a Python {} environment", python.version));
    let made = Command::new(&python.path)
        .args(["-I", "-m", "venv"])
        .arg(folder)
        .output()
        .with_context(|| format!("can't start {}", python.path.display()))?;
    if !made.status.success() {
        bail!(
            "python -m venv failed: {}; is python3-venv installed?",
            last_lines(&String::from_utf8_lossy(&[made.stdout, made.stderr].concat()))
        );
    }
    step.finish();
    install(folder)?;
    let step = Progress::start("trimming it");
    trim(folder)?;
    step.finish();
    Ok(())
}

fn install(folder: &Path) -> anyhow::Result<()> {
    let total = LOCK.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric())).count();
    let step = Progress::start(&format!("installing {total} packages"));
    let lock = folder.join("requirements.lock");
    fs::write(&lock, LOCK).with_context(|| format!("can't write {}", lock.display()))?;
    let mut pip = Command::new(folder.join("bin/python3"))
        .args(["-I", "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "-r"])
        .arg(&lock)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't start pip")?;
    let stderr = pip.stderr.take();
    let errors = std::thread::spawn(move || {
        stderr.map(|mut pipe| std::io::read_to_string(&mut pipe).unwrap_or_default()).unwrap_or_default()
    });
    let mut collected = 0;
    let mut lines = Vec::new();
    for line in BufReader::new(pip.stdout.take().context("pip has no output")?).lines() {
        let line = line.context("can't read pip's output")?;
        if let Some(package) = line.strip_prefix("Collecting ") {
            collected += 1;
            step.count(collected, total, package.split(['=', ' ']).next().unwrap_or_default());
        } else if line.starts_with("Installing collected packages") {
            step.update("unpacking and compiling");
        }
        lines.push(line);
    }
    let status = pip.wait().context("can't wait for pip")?;
    let errors = errors.join().unwrap_or_default();
    if !status.success() {
        let said = if errors.trim().is_empty() { lines.join("\n") } else { errors };
        bail!(
            "pip could not install the packages: {}\nIs the package index reachable? pip's own configuration (pip.conf, PIP_INDEX_URL) is used",
            last_lines(&said)
        );
    }
    step.finish();
    Ok(())
}

/// Leaves out what sandboxes have no use for (the packages' own tests, pip itself), and lets scripts find their
/// interpreter where it will be inside.
fn trim(folder: &Path) -> anyhow::Result<()> {
    for packages in site_packages(folder)? {
        remove_tests(&packages)?;
        for entry in fs::read_dir(&packages)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_installer =
                ["pip", "setuptools", "_distutils_hack", "distutils-precedence.pth", "pkg_resources"]
                    .iter()
                    .any(|tool| name == *tool || name.starts_with(&format!("{tool}-")));
            if is_installer {
                remove_any(&entry.path())?;
            }
        }
    }
    let interpreter = format!("#!/{PYTHON}/bin/python3");
    for entry in fs::read_dir(folder.join("bin"))?.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("pip") || name.to_ascii_lowercase().starts_with("activate") {
            remove_any(&path)?;
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if let Some((first, rest)) = text.split_once('\n')
            && first.starts_with("#!")
            && first.contains("python")
            && !fs::symlink_metadata(&path)?.is_symlink()
        {
            fs::write(&path, format!("{interpreter}\n{rest}"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Puts matplotlib's backend of ours into an environment, also into one that was made before there was one. Whole or not at
/// all: runs may go on in it.
pub fn add_plots(folder: &Path) -> anyhow::Result<()> {
    for packages in site_packages(folder)? {
        let path = packages.join(PLOTS_MODULE);
        if fs::read_to_string(&path).is_ok_and(|there| there == PLOTS) {
            continue;
        }
        let new = packages.join(".redoma_plots.new");
        fs::write(&new, PLOTS)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("can't write {}", path.display()))?;
        // Sandboxes can't keep what they compile. Without it they do it each time: no reason to fail.
        let _ = Command::new(folder.join("bin/python3"))
            .args(["-I", "-m", "py_compile"])
            .arg(&path)
            .stdin(Stdio::null())
            .output();
    }
    Ok(())
}

fn site_packages(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let lib = folder.join("lib");
    let versions = fs::read_dir(&lib).with_context(|| lib.display().to_string())?;
    Ok(versions
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .filter(|path| path.is_dir())
        .collect())
}

fn remove_tests(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
        if entry.file_type()?.is_dir() {
            if entry.file_name() == "tests" {
                fs::remove_dir_all(entry.path())?;
            } else {
                remove_tests(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn remove_any(path: &Path) -> anyhow::Result<()> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    result.with_context(|| format!("can't remove {}", path.display()))
}

/// Matplotlib's list of fonts, which it would otherwise make anew in every sandbox, taking a second. Gives what to link
/// into the home folder.
pub fn matplotlib_cache(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let step = Progress::start("listing fonts for matplotlib");
    let cache = folder.join("share/redoma/matplotlib");
    fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    let output = Command::new(folder.join("bin/python3"))
        .args(["-I", "-c", "import matplotlib.font_manager"])
        .env("MPLCONFIGDIR", &cache)
        .env("OPENBLAS_NUM_THREADS", "1")
        .output()
        .context("can't start the new Python")?;
    if !output.status.success() {
        bail!("matplotlib does not work: {}", last_lines(&String::from_utf8_lossy(&output.stderr)));
    }
    let mut links = BTreeMap::new();
    for entry in fs::read_dir(&cache)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("fontlist") {
            links.insert(
                format!(".config/matplotlib/{name}"),
                format!("/{PYTHON}/share/redoma/matplotlib/{name}"),
            );
        }
    }
    step.finish();
    Ok(links)
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
