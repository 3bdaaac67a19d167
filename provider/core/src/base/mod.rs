//! Vocabulary: ids, units, times of the week, and small helpers that know nothing of GPUs.

pub mod calendar;
pub mod engine_clock;
pub(crate) mod fnv;
pub mod ids;
pub(crate) mod index;
pub mod kinds;
pub(crate) mod pairs;
pub mod sabotage;
pub mod shared;
pub mod shares;
pub mod text;
pub mod units;
