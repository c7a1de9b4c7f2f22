//! The inside of a sandbox: what runs there before the user's code does.
//!
//! Everything in this crate runs jailed, with the user's input in its hands. It may fail, and a
//! hostile input may even crash it; what such a crash ends is one sandbox that was the user's
//! anyway.

pub mod inside;
pub mod typescript;
