//! The journal's rows: a journal is refused, or restored, and then the same again when it is read
//! once more. What people ask of it is answered or refused.
//!
//! An input is rows, one a line: a table and its columns, with tabs between. Checksums are made here,
//! as whoever damages a row by chance is told by them.

use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use jiff::SignedDuration;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, SqliteConnection};
use stoker_core::base::ids::DecisionId;
use stoker_journal::{Journal, checksum};
use stoker_tests::market;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A table with the columns that an input gives.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
}

/// The tables.
pub(crate) const TABLES: [Table; 9] = [
    Table { name: "content", columns: &["id", "body"] },
    Table { name: "step", columns: &["stream", "seq", "base", "body"] },
    Table { name: "accepted", columns: &["seq", "at", "body", "memory"] },
    Table {
        name: "decision",
        columns: &[
            "id",
            "at",
            "policy",
            "prices",
            "facts",
            "snapshot",
            "memory_before",
            "memory_after",
            "actions",
            "notes",
            "explanations",
        ],
    },
    Table { name: "touched", columns: &["subject", "decision"] },
    Table { name: "known_hour", columns: &["hour", "known", "until"] },
    Table {
        name: "used_hour",
        columns: &["hour", "cloud", "region", "zone", "instance_type", "capacity_type", "node_seconds"],
    },
    Table { name: "clock", columns: &["id", "now", "boot", "boot_id", "decision", "call"] },
    Table { name: "incarnation", columns: &["id", "name"] },
];

struct Place {
    runtime: Runtime,
    dir: TempDir,
    db: SqliteConnection,
}

/// An empty journal of this process, which inputs fill one after the other.
static PLACE: LazyLock<Mutex<Place>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dir = TempDir::new().expect("a directory");
    let db = runtime.block_on(async {
        Journal::open(dir.path()).await.expect("a new journal").0.close().await;
        connect(&dir.path().join("journal.db")).await
    });
    Mutex::new(Place { runtime, dir, db })
});

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("a connection")
}

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    let Place { runtime, dir, db } = &mut *place;
    runtime.block_on(async {
        fill(db, text).await.expect("rows can be written");
        read(dir.path()).await;
    });
}

/// What is restored of these rows; `None` where they are refused.
#[cfg(not(feature = "fuzzing"))]
pub(crate) fn memory_of(text: &str) -> Option<stoker_core::state::memory::Memory> {
    let mut place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    let Place { runtime, dir, db } = &mut *place;
    runtime.block_on(async {
        fill(db, text).await.expect("rows can be written");
        let (journal, restored) = Journal::open(dir.path()).await.ok()?;
        journal.close().await;
        Some(restored.memory)
    })
}

/// Makes the rows of the input all that there are; those that break a key are left out.
async fn fill(db: &mut SqliteConnection, text: &str) -> Result<(), sqlx::Error> {
    let mut all = db.begin().await?;
    for table in TABLES {
        sqlx::query(AssertSqlSafe(format!("DELETE FROM {}", table.name))).execute(&mut *all).await?;
    }
    for line in text.lines() {
        let mut cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let name = cells.remove(0);
        let Some(table) = TABLES.iter().find(|table| table.name == name) else { continue };
        let mut columns = table.columns.join(", ");
        cells.resize(table.columns.len(), String::new());
        let number = |text: &String| text.parse::<i64>().unwrap_or_default();
        if table.name == "step" {
            columns.push_str(", checksum");
            cells.push(checksum::of_step(number(&cells[1]), number(&cells[2]), &cells[3]).to_string());
        }
        if table.name == "content" {
            columns.push_str(", hash");
            cells.push(checksum::of_content(&cells[1]));
        }
        let marks: Vec<String> = (1..=cells.len()).map(|at| format!("${at}")).collect();
        let insert = format!("INSERT OR IGNORE INTO {} ({columns}) VALUES ({})", table.name, marks.join(", "));
        let query = cells.iter().fold(sqlx::query(AssertSqlSafe(insert)), sqlx::query::Query::bind);
        query.execute(&mut *all).await?;
    }
    all.commit().await
}

async fn read(dir: &Path) {
    let (journal, restored) = match Journal::open(dir).await {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.label().is_empty());
            return;
        }
    };
    let reader = journal.reader();
    assert_eq!(reader.memory().await.expect("what was restored can be read"), restored.memory);
    let decisions = reader.recent(5).await.unwrap_or_default();
    let ids = decisions.iter().map(|decision| decision.id).chain([DecisionId(1), DecisionId(2)]);
    for id in ids.take(4).collect::<Vec<_>>() {
        let shown = reader.explain(id).await;
        assert!(shown.is_ok_and(|shown| shown.is_some()) || !decisions.iter().any(|decision| decision.id == id));
        drop(reader.memories(id).await);
        if let Ok(Some(inputs)) = reader.replay_inputs(id).await {
            drop(inputs.catalogue());
        }
    }
    assert!(decisions.iter().all(|decision| decision.id < restored.next_decision), "a decision after the last");
    drop(reader.recent_calls(5).await);
    drop(reader.last_policy().await);
    let month = SignedDuration::from_hours(31 * 24);
    let hours = reader.used_between(market::start() - month, market::start()).await.unwrap_or_default();
    assert!(hours.len() <= 31 * 24, "{} hours of a month", hours.len());
    drop(reader.decisions_of_node("r1").await);
    journal.close().await;
    let again = Journal::open_read_only(dir).await.expect("what was opened once opens again");
    assert_eq!(again.memory().await.expect("a memory"), restored.memory, "another memory when it is read again");
    again.close().await;
}
