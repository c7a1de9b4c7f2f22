//! The files that sandboxes made ahead of time need inside: what an interpreter does before it sees any code.

/// The library that Python zygotes load.
pub const PYTHON_LIBRARY: &[u8] = include_bytes!(env!("REDOMA_PYTHON_LIBRARY"));
/// The script that makes a Python interpreter a zygote.
pub const ZYGOTE: &str = include_str!("inside/zygote.py");
/// What it imports for programs that call tools.
pub const TOOLS: &str = include_str!("inside/tools.py");
/// What a Node that is started ahead of time loads first.
pub const PREWARM: &str = include_str!("inside/prewarm.js");
