//! What all sandboxes of a nursery have in common. The supervisor writes it into the nursery's root; those who make
//! sandboxes there read it once.

use std::collections::BTreeMap;

use redoma_model::{ByteSize, Layer, Limits};
use serde::{Deserialize, Serialize};

use crate::plan::{FiltersAhead, Ids, Plan, PlanError, Program, TreeEntry};
use crate::seccomp::Filter;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blueprint {
    tree: Vec<Piece>,
    home: Vec<Piece>,
    layers: Vec<Layer>,
    by_root: bool,
    disk: u64,
    files: u64,
    /// Kinds of sandboxes that have something more, by name.
    variants: BTreeMap<String, Variant>,
    /// The interpreter that zygotes are, with the arguments that make it one.
    zygote: Option<ProgramAhead>,
}

/// What a kind of sandboxes has beyond all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Variant {
    tree: Vec<Piece>,
    home: Vec<Piece>,
    /// Started ahead of time.
    ahead: Option<ProgramAhead>,
}

/// A program with everything that it is started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramAhead {
    pub path: String,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl ProgramAhead {
    pub(crate) fn program(&self) -> Result<Program, PlanError> {
        let env: Vec<_> = self.env.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        Program::new(&self.path, &self.argv, &env)
    }
}

/// A variant's plan, and the program that is started ahead of time in it.
#[derive(Debug)]
pub(crate) struct PlanAhead {
    pub(crate) plan: Plan,
    pub(crate) program: Option<Program>,
}

/// A [`TreeEntry`] as seen from inside the nursery, where the host's folders are at their places already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Piece {
    Folder(String),
    Link(String, String),
    File(String, Vec<u8>),
    Bind { path: String, folder: bool },
    Cover(String),
}

impl Piece {
    fn new(entry: &TreeEntry) -> Option<Self> {
        let text = |text: &std::ffi::CStr| text.to_str().ok().map(str::to_owned);
        Some(match entry {
            TreeEntry::Folder { path } => Self::Folder(text(path)?),
            TreeEntry::Link { path, target } => Self::Link(text(path)?, text(target)?),
            TreeEntry::File { path, content } => Self::File(text(path)?, content.clone()),
            TreeEntry::Bind { path, folder, .. } => Self::Bind { path: text(path)?, folder: *folder },
            TreeEntry::Cover { path } => Self::Cover(text(path)?),
        })
    }

    fn entry(&self) -> Result<TreeEntry, PlanError> {
        match self {
            Self::Folder(path) => TreeEntry::folder(path),
            Self::Link(path, target) => TreeEntry::link(path, target),
            Self::File(path, content) => TreeEntry::file(path, content.clone()),
            Self::Bind { path, folder: true } => TreeEntry::bind_folder(format!("/{path}").as_ref(), path),
            Self::Bind { path, folder: false } => TreeEntry::bind_file(format!("/{path}").as_ref(), path),
            Self::Cover(path) => TreeEntry::cover(path),
        }
    }
}

impl Blueprint {
    /// For sandboxes with this tree, whose folders are at the same places in the nursery. `None` if a name in it is not
    /// UTF-8. `limits` says how large the scratch is unless an assignment says otherwise.
    pub fn new(
        tree: &[TreeEntry],
        home: &[TreeEntry],
        layers: &[Layer],
        by_root: bool,
        limits: &Limits,
    ) -> Option<Self> {
        Some(Self {
            tree: tree.iter().map(Piece::new).collect::<Option<_>>()?,
            home: home.iter().map(Piece::new).collect::<Option<_>>()?,
            layers: layers.to_vec(),
            by_root,
            disk: limits.disk.0,
            files: limits.files,
            variants: BTreeMap::new(),
            zygote: None,
        })
    }

    /// Adds a kind of sandboxes that has more in its root or home, or a program that is started ahead of time. `false` if a
    /// name in it is not UTF-8.
    pub fn add_variant(
        &mut self,
        name: &str,
        tree: &[TreeEntry],
        home: &[TreeEntry],
        ahead: Option<ProgramAhead>,
    ) -> bool {
        let pieces = |entries: &[TreeEntry]| entries.iter().map(Piece::new).collect::<Option<Vec<_>>>();
        let (Some(tree), Some(home)) = (pieces(tree), pieces(home)) else { return false };
        self.variants.insert(name.to_owned(), Variant { tree, home, ahead });
        true
    }

    /// Says what zygotes are.
    pub fn set_zygote(&mut self, program: ProgramAhead) {
        self.zygote = Some(program);
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The plans of all sandboxes, but for their ids, by the names of their variants; the plain one's is empty.
    pub(crate) fn plans(&self) -> Result<BTreeMap<String, PlanAhead>, PlanError> {
        let plain = PlanAhead { plan: self.plan(&[], &[])?, program: None };
        let mut plans = BTreeMap::from([(String::new(), plain)]);
        for (name, variant) in &self.variants {
            let program = variant.ahead.as_ref().map(ProgramAhead::program).transpose()?;
            plans.insert(name.clone(), PlanAhead { plan: self.plan(&variant.tree, &variant.home)?, program });
        }
        Ok(plans)
    }

    fn plan(&self, more_tree: &[Piece], more_home: &[Piece]) -> Result<Plan, PlanError> {
        let ids = Ids { host_uid: 0, host_gid: 0, by_root: self.by_root };
        let limits = Limits { disk: ByteSize(self.disk), files: self.files, ..Limits::default() };
        let entries = |pieces: &[Piece], more: &[Piece]| {
            pieces.iter().chain(more).map(Piece::entry).collect::<Result<Vec<_>, _>>()
        };
        // What is executed comes with each assignment.
        let program = Program::new::<&str>("", &[], &[])?;
        let (tree, home) = (entries(&self.tree, more_tree)?, entries(&self.home, more_home)?);
        let plan = Plan::new(ids, &limits, &self.layers, tree, home, program)?;
        let filters = FiltersAhead { with_leave: Filter::for_code_with_leave(), init: Filter::for_init() };
        Ok(Plan { seccomp_ahead: Some(filters), ..plan })
    }

    pub(crate) fn zygote(&self) -> Option<&ProgramAhead> {
        self.zygote.as_ref()
    }
}
