//! Where decision time stood last.

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::engine_clock::Mark;

use super::checksum;
use super::error::{StoreError, While as _};
use super::read::moment;
use super::store::Connection;

/// Writes down where decision time stands.
pub(super) async fn keep(db: &mut Connection, mark: &Mark) -> Result<(), StoreError> {
    let newest = "SELECT COALESCE((SELECT MAX(id) FROM decision), 0), COALESCE((SELECT MAX(seq) FROM accepted), 0)";
    let (decision, call) = sqlx::query_as(newest).fetch_one(&mut *db).await.during("looking for the last entries")?;
    let boot = i64::try_from(mark.boot.as_nanos()).unwrap_or(i64::MAX);
    let row = ClockRow { now: mark.now.to_string(), boot, boot_id: mark.boot_id.clone(), decision, call, checksum: None };
    let checksum = row.sum();
    sqlx::query(
        "INSERT INTO clock (id, now, boot, boot_id, decision, call, checksum) VALUES (1, $1, $2, $3, $4, $5, $6) \
         ON CONFLICT (id) DO UPDATE SET now = excluded.now, boot = excluded.boot, boot_id = excluded.boot_id, \
         decision = excluded.decision, call = excluded.call, checksum = excluded.checksum",
    )
    .bind(row.now)
    .bind(row.boot)
    .bind(row.boot_id)
    .bind(row.decision)
    .bind(row.call)
    .bind(checksum)
    .execute(&mut *db)
    .await
    .during("writing down the time")?;
    Ok(())
}

/// Where time stood, as it is stored.
#[derive(Debug, sqlx::FromRow)]
struct ClockRow {
    now: String,
    boot: i64,
    boot_id: Option<String>,
    decision: i64,
    call: i64,
    /// `None` of a row that a release without checksums wrote.
    checksum: Option<i64>,
}

impl ClockRow {
    /// What its checksum has to be.
    fn sum(&self) -> i64 {
        checksum::of_row(&[self.boot, self.decision, self.call], &[&self.now, self.boot_id.as_deref().unwrap_or_default()])
    }
}

/// Where decision time stood last: at what was noted of it, and no earlier than decisions and calls that were written since. `None` in an
/// empty journal.
pub(super) async fn last(db: &mut Connection) -> Result<Option<Mark>, StoreError> {
    let noted: Option<ClockRow> =
        sqlx::query_as("SELECT * FROM clock").fetch_optional(&mut *db).await.during("looking for the last time")?;
    let (noted, decision, call) = match noted {
        // Memory moves with it: a changed one would move all deadlines.
        Some(row) if row.checksum.is_some_and(|sum| sum != row.sum()) => {
            return Err(StoreError::Damaged { what: "the row of the clock does not match its checksum".to_owned() });
        }
        Some(ClockRow { now, boot, boot_id, decision, call, .. }) => {
            let now = moment(&now, || "the time".to_owned())?;
            (Some(Mark { now, boot: SignedDuration::from_nanos(boot), boot_id }), decision, call)
        }
        None => (None, 0, 0),
    };
    let mut written: Option<Timestamp> = None;
    for (select, known) in [
        ("SELECT at FROM decision WHERE id > $1 ORDER BY id DESC LIMIT 1", decision),
        ("SELECT at FROM accepted WHERE seq > $1 ORDER BY seq DESC LIMIT 1", call),
    ] {
        let at: Option<String> =
            sqlx::query_scalar(select).bind(known).fetch_optional(&mut *db).await.during("looking for the last entry")?;
        if let Some(at) = at {
            written = written.max(Some(moment(&at, || "the time of the last entry".to_owned())?));
        }
    }
    Ok(match (noted, written) {
        // Written since the last note of the time: by the boot-time clock that much later.
        (Some(mark), Some(at)) if at > mark.now => {
            Some(Mark { now: at, boot: mark.boot.saturating_add(at.duration_since(mark.now)), ..mark })
        }
        (Some(mark), _) => Some(mark),
        (None, written) => written.map(|now| Mark { now, boot: SignedDuration::ZERO, boot_id: None }),
    })
}

/// Forgets the hours of use after `now`: a wall clock that ran ahead left them, and what is counted
/// next would wait for them to pass.
pub(super) async fn forget_after(db: &mut Connection, now: Timestamp) -> Result<(), StoreError> {
    let (seconds, hour) = (now.as_second(), now.as_second().div_euclid(3_600));
    for statement in ["DELETE FROM known_hour WHERE hour > $1", "DELETE FROM used_hour WHERE hour > $1"] {
        sqlx::query(statement).bind(hour).execute(&mut *db).await.during("forgetting hours to come")?;
    }
    sqlx::query("UPDATE known_hour SET until = $1 WHERE until > $1")
        .bind(seconds)
        .execute(&mut *db)
        .await
        .during("forgetting moments to come")?;
    Ok(())
}
