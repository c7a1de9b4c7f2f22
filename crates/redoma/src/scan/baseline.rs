//! What was there before: a file of fingerprints, with a word each on what it is so that a review of it makes sense.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::FileFindings;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Baseline {
    version: u32,
    /// By fingerprint: kind, file and line's text.
    findings: BTreeMap<String, String>,
}

impl Baseline {
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("can't read the baseline {}; make one with --write-baseline", path.display())
        })?;
        serde_json::from_str(&text).with_context(|| {
            format!("{} is not a baseline; make one with redoma scan --write-baseline", path.display())
        })
    }

    pub(super) fn of(files: &[FileFindings]) -> Self {
        let findings = files.iter().flat_map(|file| {
            file.risks.iter().map(|risk| {
                (risk.fingerprint.clone(), format!("{} {}: {}", risk.kind.id, file.path, risk.excerpt))
            })
        });
        Self { version: 1, findings: findings.collect() }
    }

    /// Writes it and says how many are in it.
    pub(super) fn store(&self, path: &Path) -> Result<usize> {
        let text = serde_json::to_string_pretty(self).context("can't make JSON of the baseline")?;
        std::fs::write(path, text + "\n").with_context(|| format!("can't write {}", path.display()))?;
        Ok(self.findings.len())
    }

    pub(super) fn holds(&self, fingerprint: &str) -> bool {
        self.findings.contains_key(fingerprint)
    }
}
