//! Time zones by their IANA names.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use crate::base::text::{nearest, quoted};

/// Bundled, so that every machine knows the same rules.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Why a text is no time zone, with the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not an IANA time zone: write {}", quoted(.text), .meant.as_deref().unwrap_or("one such as Europe/Berlin, America/New_York or UTC"))]
pub struct ZoneError {
    text: String,
    meant: Option<String>,
}

/// The clock of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    /// The zone of an IANA name, in any case.
    ///
    /// # Errors
    /// When there is none of that name; names one that may have been meant.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        let known = DATABASE.get(text).ok();
        let named = known.and_then(|rules| Some(Self { name: rules.iana_name()?.to_owned(), rules }));
        named.ok_or_else(|| {
            let all: Vec<String> = DATABASE.available().map(|name| name.to_string()).collect();
            ZoneError { text: text.to_owned(), meant: nearest(text, all.iter().map(String::as_str)).map(str::to_owned) }
        })
    }

    /// The one without daylight saving, by which every other is told.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// Its IANA name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// What the clock shows, for people.
    pub fn show(&self, now: Timestamp) -> String {
        format!("{} ({})", self.clock(now).strftime("%Y-%m-%d %H:%M"), self.name)
    }

    /// What the clock shows.
    pub(super) fn clock(&self, now: Timestamp) -> DateTime {
        self.rules.to_datetime(now)
    }

    /// When the clock shows this first; the moment of the change where it skips it. Later times never come earlier.
    pub(super) fn moment(&self, time: DateTime) -> Option<Timestamp> {
        match self.rules.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(time).ok()
            }
            AmbiguousOffset::Gap { after, .. } => {
                let before_change = after.to_timestamp(time).ok()?;
                self.rules.following(before_change).next().map(|change| change.timestamp())
            }
        }
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;

    fn try_from(text: String) -> Result<Self, ZoneError> {
        Self::parse(&text)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name
    }
}
