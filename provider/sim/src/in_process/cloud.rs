//! What a desk buys from: machines in virtual time, by whole seconds from the start.

use stoker_core::facts::supply::Refusal;
use stoker_core::market::offer::Market;

/// When a machine changes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// When it is Ready.
    pub ready: i64,
    /// When the cloud says that it will take it, and when it does.
    pub reclaim: Option<(i64, i64)>,
}

impl Life {
    /// The moments at which it changes.
    pub fn moments(&self) -> impl Iterator<Item = i64> + use<> {
        let (notice, gone) = self.reclaim.unzip();
        [Some(self.ready), notice, gone].into_iter().flatten()
    }
}

/// A cloud that sells machines.
pub trait Cloud {
    /// Buys a machine; answers its number.
    ///
    /// # Errors
    /// Says why there is none to be had.
    fn launch(&mut self, now: i64, market: &Market) -> Result<u64, Refusal>;

    /// Ends a machine.
    fn end(&mut self, now: i64, machine: u64);

    /// Takes the machines whose time has come.
    fn reclaim(&mut self, now: i64);

    /// When a machine changes; `None` for one that is gone.
    fn life(&self, machine: u64) -> Option<Life>;
}
