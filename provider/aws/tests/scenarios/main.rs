//! What the supplier does when EC2 does what it does: the scenarios of its contract, against a peer and in virtual time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bench;
mod consoles;
mod errors;
mod facts;
mod health;
mod launches;
mod listing;
mod notices;
mod outdated;
mod over_http;
mod reload;
mod reservations;
mod rows;
mod seeded;
mod stock;
