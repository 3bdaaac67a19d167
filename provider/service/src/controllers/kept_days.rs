//! Days of spend: once a day is over it is summed up and kept, for its spans and pods are forgotten after a month or two.

use std::error::Error;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_advice::spend::{DAY, Tariff};
use stoker_core::market::price::PriceBook;
use stoker_journal::{DaysWriter, EncodedDay, JournalError, Reader};

use crate::clock::Clock;
use crate::publish::view::View;

/// How often it is looked whether a day is over.
const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// A day is summed up so long after its end: by then readings and ends of pods are written.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// What is followed.
pub struct Followed {
    /// Where "now" comes from.
    pub clock: Clock,
    /// The published view, for its policy.
    pub view: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    /// The price tables.
    pub book: Arc<PriceBook>,
}

/// Keeps days, without an end. The leader alone writes them.
pub async fn run(followed: Followed, reader: Reader, writer: DaysWriter) {
    loop {
        followed.clock.sleep(LOOK_EVERY).await;
        let policy = Arc::clone(&(followed.view)().catalogue.policy);
        let now = followed.clock.now();
        let tariff = Tariff::new(policy, Arc::clone(&followed.book), now);
        if let Err(error) = keep(&reader, &writer, &tariff, now).await {
            tracing::warn!(error = &error as &dyn Error, "a day of spend cannot be kept; retrying");
        }
    }
}

/// Keeps every day that is over at `now` and not kept yet, by the prices of `tariff`, its commitments, and those that
/// have ended since.
///
/// # Errors
/// When the journal cannot be read or written.
pub async fn keep(reader: &Reader, writer: &DaysWriter, tariff: &Tariff, now: Timestamp) -> Result<(), JournalError> {
    let today = now.saturating_sub(SETTLED_AFTER).unwrap_or(Timestamp::MIN).as_second().div_euclid(DAY);
    while let Some(day) = reader.day_to_keep(today).await? {
        writer.write(&day_of((reader, writer), (tariff, now), day).await?).await?;
    }
    Ok(())
}

async fn day_of(
    (reader, writer): (&Reader, &DaysWriter),
    (tariff, now): (&Tariff, Timestamp),
    day: i64,
) -> Result<EncodedDay, JournalError> {
    let (from, until) = (day * DAY, (day + 1) * DAY);
    let at = |second| Timestamp::from_second(second).unwrap_or(Timestamp::MIN);
    let spent = reader.spent(at(from), at(until)).await?;
    let gpu_use = reader.gpu_use(day).await?;
    let tariff = match reader.policy_before(at(until)).await? {
        Some(policy) => tariff.with_ended(&policy, now),
        None => tariff.clone(),
    };
    let writer = writer.clone();
    let sum_up = move || writer.encode(spent.day(&tariff, day, (from, until), &gpu_use, true));
    // At thousands of nodes it takes a second.
    match tokio::task::spawn_blocking(sum_up).await {
        Ok(kept) => kept,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        },
    }
}
