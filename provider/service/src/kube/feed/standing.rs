//! How the feed stands, as a person reads it.

use std::time::Duration;

use super::{Broken, KubeFeed};

/// Why the cluster's facts are not to be relied on, or may soon not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Shaky {
    /// There never were any.
    #[error("the API server has not listed all nodes and pods since the start {} s ago{}", .since.as_secs(), why(.broken.as_ref()))]
    Never {
        /// How long ago.
        since: Duration,
        /// What the last attempt met; `None` where it was not answered yet.
        broken: Option<Broken>,
    },
    /// A watch is broken: what was told last may be old.
    #[error(transparent)]
    Broken(Broken),
    /// The watches stand, and give no sign of life.
    #[error("the API server has not answered for {} s", .0.as_secs())]
    Silent(Duration),
}

fn why(broken: Option<&Broken>) -> String {
    broken.map_or_else(|| ": no answer yet".to_owned(), |broken| format!(": {broken}"))
}

impl KubeFeed {
    /// Whether the facts can be relied on.
    ///
    /// # Errors
    /// Says why not. [`healthy`](Self::healthy) bears with a broken watch for a while, this tells of it at once.
    pub fn standing(&self) -> Result<(), Shaky> {
        let broken = self.broken();
        if self.latest().is_none() {
            return Err(Shaky::Never { since: self.begun.elapsed(), broken });
        }
        match broken {
            Some(broken) => Err(Shaky::Broken(broken)),
            None if self.healthy() => Ok(()),
            None => Err(Shaky::Silent(self.age())),
        }
    }
}
