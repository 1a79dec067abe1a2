//! What several test programs share.

#![allow(dead_code, unused_imports, unused_macros)] // none of them uses all of it

pub mod api_server;
pub mod cases;
pub mod daemon;
pub mod damages;
pub mod fixture;
pub mod flows;
pub mod history;
pub mod interpreter;
#[macro_use]
pub mod netns;
pub mod program;
pub mod proxy;
pub mod trace;
pub mod unsteady;
pub mod usurper;
pub mod world;
