//! The files that sandboxes made ahead of time need inside: what an interpreter does before it sees any code.

/// The library that Python zygotes load.
pub const PYTHON_LIBRARY: &[u8] = include_bytes!(env!("REDOMA_PYTHON_LIBRARY"));
/// The script that makes a Python interpreter a zygote.
pub const ZYGOTE: &str = include_str!("inside/zygote.py");
/// What it imports for programs that call tools.
pub const TOOLS: &str = include_str!("inside/tools.py");
/// What a session's kernel is made of, and the guard of imports, by the names under which the zygote imports it.
pub const KERNEL: &[(&str, &str)] = &[
    ("redoma_imports.py", include_str!("inside/redoma_imports.py")),
    ("redoma_session.py", include_str!("inside/session.py")),
    ("redoma_kernel.py", include_str!("inside/cells/redoma_kernel.py")),
    ("redoma_transform.py", include_str!("inside/cells/redoma_transform.py")),
    ("redoma_outputs.py", include_str!("inside/cells/redoma_outputs.py")),
    ("redoma_forms.py", include_str!("inside/cells/redoma_forms.py")),
    ("redoma_texts.py", include_str!("inside/cells/redoma_texts.py")),
    ("redoma_figures.py", include_str!("inside/cells/redoma_figures.py")),
    ("redoma_tracebacks.py", include_str!("inside/cells/redoma_tracebacks.py")),
    ("redoma_display.py", include_str!("inside/cells/redoma_display.py")),
    ("redoma_objects.py", include_str!("inside/cells/redoma_objects.py")),
    ("redoma_ipython.py", include_str!("inside/cells/redoma_ipython.py")),
    ("redoma_magics.py", include_str!("inside/cells/redoma_magics.py")),
    ("redoma_commands.py", include_str!("inside/cells/redoma_commands.py")),
    ("redoma_given.py", include_str!("inside/cells/redoma_given.py")),
    ("redoma_libraries.py", include_str!("inside/cells/redoma_libraries.py")),
    ("redoma_upkeep.py", include_str!("inside/cells/redoma_upkeep.py")),
    ("redoma_repeats.py", include_str!("inside/cells/redoma_repeats.py")),
    ("redoma_guarded.py", include_str!("inside/cells/redoma_guarded.py")),
    ("redoma_shell.py", include_str!("inside/cells/redoma_shell.py")),
    ("redoma_node.py", include_str!("inside/cells/redoma_node.py")),
    ("node_kernel.js", include_str!("inside/cells/node_kernel.js")),
];
/// What a Node that is started ahead of time loads first.
pub const PREWARM: &str = include_str!("inside/prewarm.js");
