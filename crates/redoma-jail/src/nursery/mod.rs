//! The nursery: where sandboxes are made ahead of their use.
//!
//! A nursery is a sandbox of our own: fresh namespaces, the runtime's read-only root, no network, a cgroup, an unprivileged
//! uid. In it live the *keeper* (this program) and the *zygotes* (interpreters that have their libraries loaded). Both make
//! sandboxes by cloning themselves into namespaces further down. Since they are inside already, nothing that they or a
//! library of theirs does can reach the host, and when the nursery's init is killed (or the supervisor dies) the kernel
//! takes everything below with it.
//!
//! ```text
//! supervisor ── nursery's init ─┬─ keeper ──┬─ sandbox's init ── node, bash, …
//!                               │           └─ zygote ─┬─ sandbox's init ── python, resumed
//!                               │                      └─ zygote with more libraries ── …
//!                               └─ (orphans: sandboxes whose zygote has gone)
//! ```
//!
//! What a nursery can do that a sandbox for code can't: make namespaces, mount within them, and use the uids set aside for
//! sandboxes. It never sees code, input or output: those go straight from the supervisor to the sandbox, over descriptors
//! that the supervisor made.
//!
//! | file | subject |
//! |---|---|
//! | `blueprint.rs` | what all sandboxes of a nursery have in common, written down for those inside |
//! | `message.rs` | requests and answers, with descriptors |
//! | `inside.rs` | serving them: the keeper's and the zygotes' part |
//! | `outside.rs` | asking: the supervisor's part |
//! | `assignment.rs` | the one message that a waiting sandbox gets |

mod assignment;
mod blueprint;
mod inside;
mod message;
mod outside;

pub use crate::warm::Resumed;
pub use assignment::{Assignment, ExecPayload, Reader, SandboxFor, Work};
pub(crate) use assignment::{Received, ReceivedWork};
pub use blueprint::{Blueprint, ProgramAhead};
pub use inside::{Served, Server, send_warm_up};
pub use message::{Hurry, LeftOut, WarmUp};
pub use outside::{Channel, ChannelError, Growing, Order, WaitingSandbox};

/// Where a nursery keeps its own things, relative to its root.
pub const FOLDER: &str = ".redoma";
/// The [`Blueprint`], below [`FOLDER`].
pub const BLUEPRINT: &str = ".redoma/blueprint.json";
