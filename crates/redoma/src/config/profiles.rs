//! Profiles: from what is built in, through what is shipped, to what the operator wrote, and where each value came from.
//!
//! A profile is made of layers, each over the one before: the defaults; `[profiles.default]` of the file; for another
//! profile what is shipped under its name, if it is one of those; and its own section of the file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use redoma_engine::Languages;
use redoma_engine::interpreter::{GovernedProfile, ProfileBook};
use redoma_model::{Profile, ProfilePatch};

use super::suggestion::nearest;
use super::{Config, read};

/// The profiles that everybody has, beside `default`.
const SHIPPED: &str = include_str!("shipped.toml");

/// The names of the profiles that are shipped.
const SHIPPED_NAMES: [&str; 3] = ["agent", "data", "strict"];

type Patches = BTreeMap<String, ProfilePatch>;

fn shipped() -> Patches {
    toml::from_str(SHIPPED).expect("what is shipped is checked by a test")
}

impl Config {
    /// All profiles, by name.
    pub fn profiles(&self) -> anyhow::Result<BTreeMap<String, Profile>> {
        self.profile_names().map(|name| Ok((name.to_owned(), self.profile(Some(name))?))).collect()
    }

    fn profile_names(&self) -> impl Iterator<Item = &str> {
        let own = self.profiles.keys().map(String::as_str).filter(|name| !is_shipped(name));
        SHIPPED_NAMES.into_iter().chain(["default"]).chain(own)
    }

    /// The profile of this name or, if it looks like a path, in this file.
    pub fn profile(&self, name: Option<&str>) -> anyhow::Result<Profile> {
        let default = match self.profiles.get("default") {
            Some(patch) => Profile::default().with("default", patch).context("profile `default`")?,
            None => Profile::default(),
        };
        let profile = match name {
            None | Some("default") => default,
            Some(file)
                if file.contains('/') || Path::new(file).extension().is_some_and(|end| end == "toml") =>
            {
                let patch: ProfilePatch = read(Path::new(file))?;
                default.with(file, &patch).with_context(|| file.to_owned())?
            }
            Some(name) => {
                let (shipped, own) = (shipped(), self.profiles.get(name));
                let layers: Vec<_> = shipped.get(name).into_iter().chain(own).collect();
                if layers.is_empty() {
                    bail!("{}", self.no_such_profile(name));
                }
                layers
                    .into_iter()
                    .try_fold(default, |profile, layer| profile.with(name, layer))
                    .with_context(|| format!("profile `{name}`"))?
            }
        };
        check(&profile)?;
        Ok(profile)
    }

    fn no_such_profile(&self, name: &str) -> String {
        let known: Vec<_> = self.profile_names().collect();
        let nearest = nearest(name, known.iter().copied())
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        format!(
            "there is no profile `{name}`{nearest} (known: {}; a file needs a / or .toml)",
            known.join(", ")
        )
    }

    /// All profiles with their rules ready, and who has which.
    pub fn book(&self) -> anyhow::Result<ProfileBook> {
        let mut governed = Vec::new();
        let profiles = self.profiles()?;
        let default = self.profile(None)?;
        for (name, profile) in profiles {
            if profile.runtime != default.runtime {
                bail!(
                    "profile `{name}` has the runtime `{}`, and the server has one for all so far: that of the profile \
                     `default`",
                    profile.runtime
                );
            }
            let origins = self.origins(&profile)?;
            let profile =
                GovernedProfile::new(profile, origins).with_context(|| format!("profile `{name}`"))?;
            governed.push(profile);
        }
        Ok(ProfileBook::new(governed, self.assign.clone())?)
    }

    /// Where each value of a profile came from, by its name with dots.
    pub fn origins(&self, profile: &Profile) -> anyhow::Result<BTreeMap<String, String>> {
        let mut layers = vec![];
        let file: toml::Table = match &self.source {
            Some((_, text)) => toml::from_str(text)?,
            None => toml::Table::new(),
        };
        let shown = self.source.as_ref().map_or_else(String::new, |(path, _)| path.display().to_string());
        let own = |name: &str, layers: &mut Vec<(String, BTreeMap<String, String>)>| {
            if let Some(section) = file.get("profiles").and_then(|profiles| profiles.get(name)) {
                layers.push((format!("[profiles.{name}] in {shown}"), flat(section)));
            }
        };
        own("default", &mut layers);
        if profile.name != "default" {
            let shipped: toml::Table = toml::from_str(SHIPPED)?;
            if let Some(section) = shipped.get(&profile.name) {
                layers.push((format!("shipped with `{}`", profile.name), flat(section)));
            }
            own(&profile.name, &mut layers);
        }
        let values = flat(&toml::Value::try_from(profile)?);
        let of = |key: &String| {
            let layer = layers.iter().rev().find(|(_, keys)| {
                keys.keys().any(|set| {
                    set == key || set.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('.'))
                })
            });
            layer.map_or_else(|| "built in".to_owned(), |(origin, _)| origin.clone())
        };
        Ok(values.keys().filter(|key| *key != "name").map(|key| (key.clone(), of(key))).collect())
    }
}

fn is_shipped(name: &str) -> bool {
    name == "default" || SHIPPED_NAMES.contains(&name)
}

/// What only somebody who knows the languages can check.
fn check(profile: &Profile) -> anyhow::Result<()> {
    let usual = Profile::default().languages;
    if profile.languages == usual {
        return Ok(());
    }
    if profile.languages.is_empty() {
        bail!("profile `{}`: languages is empty, so nothing could run", profile.name);
    }
    let languages = Languages::built_in();
    for name in &profile.languages {
        if !languages.all().iter().any(|language| language.id == *name) {
            bail!(
                "profile `{}`: languages: `{name}` is none; choose from {}",
                profile.name,
                usual.join(", ")
            );
        }
    }
    Ok(())
}

/// All values of a table by their names with dots, as TOML. A list is one value.
pub fn flat(value: &toml::Value) -> BTreeMap<String, String> {
    fn walk(value: &toml::Value, path: &str, into: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(value, &path, into);
                }
            }
            value => {
                into.insert(path.to_owned(), value.to_string());
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(value, "", &mut all);
    all
}
