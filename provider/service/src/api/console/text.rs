//! What the console shows of the journal and the policy: in the words of the command line, which gives it here.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use jiff::civil::Date;
use stoker_core::base::ids::DecisionId;
use stoker_core::base::units::UsdMicros;
use stoker_core::policy::Policy;
use stoker_journal::Reader;

use crate::print::Table;

/// What takes a while; or why it cannot be had.
pub type Answer<T> = BoxFuture<'static, Result<T, String>>;

/// Puts the journal and the policy into words.
pub trait ConsoleText: Send + Sync + 'static {
    /// The last decisions that say something, newest first; all of one node, where it is named.
    fn decisions(&self, journal: Reader, node: Option<String>) -> Answer<Vec<Decision>>;

    /// All that is known of one decision; `None` where there is none of that number, or not any more.
    fn decision(&self, journal: Reader, id: DecisionId) -> Answer<Option<String>>;

    /// What the last thirty days cost. May take seconds: a month is read.
    fn money(&self, journal: Reader, policy: Arc<Policy>, now: Timestamp) -> Answer<Money>;

    /// A policy as a file with every default filled in.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn policy(&self, policy: &Policy) -> Result<String, String>;
}

/// A decision in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its number.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// What kind of line it is, in a word, and what it says. A line without a word goes on with the one above it.
    pub lines: Vec<(String, String)>,
}

/// What was spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Money {
    /// The time, and what it cost in all.
    pub head: Vec<String>,
    /// What each day cost, by how nodes were bought.
    pub days: Vec<Day>,
    /// What it went for.
    pub tables: Vec<Table>,
    /// What else there is to say.
    pub lines: Vec<String>,
    /// What the figures leave out, each by its word.
    pub notes: Vec<(String, String)>,
}

/// A day's cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// The day, of UTC.
    pub day: Date,
    /// By how nodes were bought, in a word; `None` where nobody knows what nodes did on that day.
    pub cost: Option<Vec<(String, UsdMicros)>>,
}

impl fmt::Debug for dyn ConsoleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConsoleText")
    }
}
