//! Named scenes in virtual time. Each is told as a timeline, what happened and what was decided and why, and held against its golden in
//! `scenes/goldens`; and what matters of it is said in words and in asserts, because a golden alone is soon taken over unread.
//!
//! `INSTA_UPDATE=always cargo test -p stoker-scenes --test scenes` writes the goldens anew; read the difference.

#[path = "scenes/common.rs"]
mod common;
#[path = "scenes/evidence.rs"]
mod evidence;
#[path = "scenes/floors.rs"]
mod floors;
#[path = "scenes/health.rs"]
mod health;
#[path = "scenes/interruptions.rs"]
mod interruptions;
#[path = "scenes/leaving.rs"]
mod leaving;
#[path = "scenes/offhours.rs"]
mod offhours;
#[path = "scenes/people.rs"]
mod people;
#[path = "scenes/probes.rs"]
mod probes;
#[path = "scenes/processes.rs"]
mod processes;
#[path = "scenes/supply.rs"]
mod supply;
#[path = "scenes/windows.rs"]
mod windows;
