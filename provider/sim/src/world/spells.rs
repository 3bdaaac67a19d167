//! The spells of a market: when its spot machines are taken back and when it runs dry. Functions of the seed, the market and
//! the time alone, so that nothing of it has to be stored.
//!
//! Times are whole seconds since the world's start.

use stoker_core::market::offer::Market;

use super::config::{SpellConfig, SpellLength};
use super::draw::{Seed, Stream, whole};

/// Time is drawn in blocks, so that any moment can be asked for at once. No spell is longer than a block: 240 h, where the measured
/// spells were cut as well.
const BLOCK: i64 = 240 * 3600;
/// No spell is shorter: the memory of a refused market is longer (3 min), so that nobody could tell.
const SHORTEST_SPELL: i64 = 60;
/// Buckets searched for a wave. Each has none with a chance of 37 %: so many empty ones do not happen.
const MAX_BUCKETS: i64 = 200;
/// A market with a wave in three hundred years has none.
const LONGEST_BUCKET: i64 = 10_000_000_000;

/// The names that draws for a market are made from.
pub(super) fn names(market: &Market) -> [&str; 5] {
    let place = &market.place;
    [
        place.cloud.as_str(),
        place.region.as_str(),
        place.zone.as_str(),
        place.instance_type.as_str(),
        market.capacity_type.as_str(),
    ]
}

/// Reclaim waves: a Poisson process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waves {
    /// Seconds that see one wave on average.
    bucket: i64,
}

impl Waves {
    /// So many per hour; `None` where that is never.
    pub(super) fn per_hour(rate: f64) -> Option<Self> {
        let bucket = whole(3600.0 / rate);
        (rate > 0.0 && bucket <= LONGEST_BUCKET).then_some(Self { bucket: bucket.max(1) })
    }

    /// The first wave after `t`, which may lie before the start: no wave does.
    pub(super) fn after(self, seed: Seed, market: &Market, t: i64) -> Option<i64> {
        let first = t.max(0) / self.bucket;
        (first..first + MAX_BUCKETS).find_map(|index| {
            let mut stream = seed.stream("waves", &names(market), index);
            let count = stream.poisson_one();
            (0..count).map(|_| index * self.bucket + stream.up_to(self.bucket - 1)).filter(|wave| *wave > t).min()
        })
    }
}

/// Whether a market's stock comes and goes.
pub(super) fn alternates(seed: Seed, market: &Market, share: f64) -> bool {
    seed.stream("alternates", &names(market), 0).chance(share)
}

/// Whether a market whose stock comes and goes has none at `t`. Every block begins with stock.
pub(super) fn is_dry(seed: Seed, market: &Market, spells: &SpellConfig, t: i64) -> bool {
    let mut stream = seed.stream("spells", &names(market), t.div_euclid(BLOCK));
    let t = t.rem_euclid(BLOCK);
    let mut end = 0;
    loop {
        end += length(&mut stream, spells.in_stock);
        if t < end {
            return false;
        }
        end += length(&mut stream, spells.out_of_stock);
        if t < end {
            return true;
        }
    }
}

fn length(stream: &mut Stream, of: SpellLength) -> i64 {
    whole(stream.log_normal(of.median_hours * 3600.0, of.sigma)).clamp(SHORTEST_SPELL, BLOCK)
}

#[cfg(test)]
mod tests {
    use super::super::tests::market;
    use super::*;
    use stoker_core::market::offer::CapacityType;

    #[test]
    fn waves_come_as_often_as_said_and_look_the_same_from_anywhere() {
        let (seed, market) = (Seed(3), market("use1-az1", "g6.xlarge", CapacityType::Spot));
        let waves = Waves::per_hour(0.5).unwrap();
        let mut all = Vec::new();
        let mut t = -1;
        while t < 10_000 * 3600 {
            t = waves.after(seed, &market, t).unwrap();
            all.push(t);
        }
        assert!((4_700..5_300).contains(&all.len()), "{}", all.len());
        for t in (0..3_600_000).step_by(7_919) {
            assert_eq!(waves.after(seed, &market, t), all.iter().copied().find(|wave| *wave > t));
        }
    }

    #[test]
    fn no_rate_makes_no_waves() {
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            assert_eq!(Waves::per_hour(rate), None, "{rate}");
        }
        assert!(Waves::per_hour(f64::INFINITY).is_some());
    }

    #[test]
    fn dry_spells_take_their_share_of_the_time() {
        let market = market("use1-az1", "g6.xlarge", CapacityType::Spot);
        let even = SpellLength { median_hours: 1.0, sigma: 0.5 };
        let spells = SpellConfig { in_stock: even, out_of_stock: even, ..SpellConfig::default() };
        let hours = 24 * 200;
        let dry = (0..hours).filter(|hour| is_dry(Seed(3), &market, &spells, hour * 3600)).count();
        assert!((hours * 2 / 5..hours * 3 / 5).contains(&i64::try_from(dry).unwrap()), "{dry} of {hours}");
        assert!(!is_dry(Seed(3), &market, &spells, 0));
    }
}
