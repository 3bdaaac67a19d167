//! How long nodes take from their purchase until pods run on them.

use crate::world::draw::{Seed, Stream};

/// Lognormal boot times, by default with a median of 270 seconds and a standard deviation of the logarithm of 0.4.
pub struct Boots {
    median: f64,
    sigma: f64,
    draws: Draws,
    used: usize,
}

enum Draws {
    Seeded(Box<Stream>),
    Recorded(std::vec::IntoIter<f64>),
}

impl Boots {
    const fn new(draws: Draws) -> Self {
        Self { median: 270.0, sigma: 0.4, draws, used: 0 }
    }

    /// Drawn from the seed.
    pub fn seeded(seed: u64) -> Self {
        Self::new(Draws::Seeded(Box::new(Seed(seed).stream("peer-boots", &[], 0))))
    }

    /// From standard normal draws. Boots after the last of them take the median.
    pub fn recorded(normals: Vec<f64>) -> Self {
        Self::new(Draws::Recorded(normals.into_iter()))
    }

    /// No time at all.
    pub fn at_once() -> Self {
        Self::recorded(Vec::new()).lasting(0.0, 0.0)
    }

    /// The same draws with another median in seconds and another standard deviation of the logarithm.
    #[must_use]
    pub fn lasting(self, median: f64, sigma: f64) -> Self {
        Self { median, sigma, ..self }
    }

    /// Seconds of the next boot.
    pub(super) fn seconds(&mut self) -> f64 {
        self.used += 1;
        let normal = match &mut self.draws {
            Draws::Seeded(stream) => stream.normal(),
            Draws::Recorded(normals) => normals.next().unwrap_or(0.0),
        };
        self.median * (self.sigma * normal).exp()
    }

    /// Seconds of a boot in the median.
    pub(super) const fn median(&self) -> f64 {
        self.median
    }

    /// Number of boots that were drawn.
    pub(super) const fn used(&self) -> usize {
        self.used
    }
}
