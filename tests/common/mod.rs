//! What several test programs share.

#![allow(dead_code, unused_imports, unused_macros)] // none of them uses all of it

#[macro_use]
pub mod netns;
