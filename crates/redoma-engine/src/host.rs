//! Which layers this host gives, and whether that is enough to run.

use redoma_jail::cgroup::{Hierarchy, NoCgroup};
use redoma_jail::{landlock, trial};
use redoma_model::Layer;

/// Why a run is refused: a layer is missing and nobody has waived it.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "refused: this host lacks the isolation layer `{layer}`: {reason}. Or accept weaker isolation: \"{layer}\" in isolation.allow_missing of redoma.toml"
)]
pub struct Refused {
    pub layer: Layer,
    pub reason: String,
}

/// What was found on this host.
#[derive(Debug)]
pub struct Host {
    pub hierarchy: Result<Hierarchy, NoCgroup>,
    pub landlock_abi: Option<u8>,
    has_cgroup_namespaces: bool,
    has_time_namespaces: bool,
}

impl Host {
    /// Looks, cheaply enough for every run. That the rest can be had is found out by doing it.
    pub fn detect() -> Self {
        Self {
            hierarchy: Hierarchy::find(),
            landlock_abi: landlock::abi().ok(),
            has_cgroup_namespaces: trial::has_cgroup_namespaces(),
            has_time_namespaces: trial::has_time_namespaces(),
        }
    }

    /// The layers that a run here gets (swap and input/output depend on the group and come later), and those missing.
    pub fn layers(&self) -> (Vec<Layer>, Vec<Refused>) {
        let reason = |layer| match layer {
            Layer::Cgroup => {
                self.hierarchy.as_ref().err().map(|error| format!("{error}; {}", error.advice()))
            }
            Layer::Landlock => self.landlock_abi.is_none().then(|| {
                "the kernel has no Landlock (Linux 5.13 or newer, with `landlock` in its lsm= list)"
                    .to_owned()
            }),
            Layer::CgroupNamespace => {
                (!self.has_cgroup_namespaces).then(|| "the kernel has no cgroup namespaces".to_owned())
            }
            Layer::TimeNamespace => (!self.has_time_namespaces)
                .then(|| "the kernel has no time namespaces (Linux 5.6)".to_owned()),
            _ => None,
        };
        let mut present = Vec::new();
        let mut missing = Vec::new();
        for layer in Layer::ALL.into_iter().filter(|layer| !matches!(layer, Layer::Swap | Layer::Io)) {
            match reason(layer) {
                None => present.push(layer),
                Some(reason) => missing.push(Refused { layer, reason }),
            }
        }
        (present, missing)
    }

    /// The layers for a run, or the first missing one that `waived` does not name.
    pub fn layers_or_refuse(&self, waived: &[Layer]) -> Result<(Vec<Layer>, Vec<Layer>), Refused> {
        let (present, missing) = self.layers();
        match missing.iter().find(|refused| !waived.contains(&refused.layer)) {
            Some(refused) => Err(refused.clone()),
            None => Ok((present, missing.into_iter().map(|refused| refused.layer).collect())),
        }
    }
}

/// Whether the host swaps at all; if not, there is nothing to limit.
pub fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").map_or(true, |swaps| swaps.lines().count() > 1)
}
