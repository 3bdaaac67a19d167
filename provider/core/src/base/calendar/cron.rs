//! Cron expressions.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::base::text::quoted;

/// The last year in which anything is looked for: four years beyond it are still years.
const LAST_YEAR: i16 = 9_990;

/// Why a text is no cron expression, with the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It has not the five fields.
    #[error(
        "{} has {fields} field{}, not 5: write minute, hour, day of the month, month and day of the week, such as 0 8 * * 1-5 \
         for 8:00 on working days",
        quoted(.text), if *.fields == 1 { "" } else { "s" }
    )]
    Fields {
        /// The text.
        text: String,
        /// So many fields.
        fields: usize,
    },
    /// One of them cannot be read.
    #[error("{} is not a cron expression, {what}: write it like 0 8 * * 1-5 for 8:00 on working days", quoted(.text))]
    Field {
        /// The text.
        text: String,
        /// Which and why.
        what: String,
    },
    /// No day is that day.
    #[error("{} never occurs: no month has that day: write a day that it has, or * for the month", quoted(.text))]
    Never {
        /// The text.
        text: String,
    },
}

/// A cron expression of five fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    table: Crontab,
}

/// What fields are called, in their order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of the month", "month", "day of the week"];

impl Cron {
    /// Reads one.
    ///
    /// # Errors
    /// Says which field is wrong.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        // The crate takes a sixth field for a time zone.
        if fields.len() != FIELDS.len() {
            return Err(CronError::Fields { text: text.to_owned(), fields: fields.len() });
        }
        let plain = fields.join(" ");
        let table = table(&plain).ok_or_else(|| CronError::Field { text: text.to_owned(), what: wrong(&fields) })?;
        let cron = Self { text: plain, table };
        match cron.after(DateTime::constant(2_026, 1, 1, 0, 0, 0, 0)) {
            Some(_) => Ok(cron),
            None => Err(CronError::Never { text: text.to_owned() }),
        }
    }

    /// The next time that it names after `time`, on the wall calendar; `None` where there is none within four years.
    pub(super) fn after(&self, time: DateTime) -> Option<DateTime> {
        if time.year() > LAST_YEAR {
            return None;
        }
        // UTC stands for the wall calendar: it skips nothing and shows nothing twice.
        let moment = TimeZone::UTC.to_timestamp(time).ok()?;
        self.table.find_next(MakeTimestamp(moment)).ok().map(|next| next.datetime())
    }
}

fn table(text: &str) -> Option<Crontab> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    parse_crontab_with(text, options).ok()
}

/// The first field that is wrong: the one that cannot be read among four that say nothing.
fn wrong(fields: &[&str]) -> String {
    let alone = |at: usize, field: &str| {
        let mut all = ["*"; FIELDS.len()];
        all[at] = field;
        table(&all.join(" ")).is_some()
    };
    let bad = fields.iter().zip(FIELDS).enumerate().find(|(at, (field, _))| !alone(*at, field));
    bad.map_or_else(
        || "its fields contradict each other".to_owned(),
        |(_, (field, name))| format!("{} is not a valid {name}", quoted(field)),
    )
}

/// As it was written, with one space between fields.
impl std::fmt::Display for Cron {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl TryFrom<String> for Cron {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, CronError> {
        Self::parse(&text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}
