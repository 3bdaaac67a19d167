//! When the spot capacity of each zone is there: alternating spells, coupled across the zones of a region.
//!
//! Each zone alternates between open and shut. The length of a spell is lognormal, as fitted to measured zones, and cut at 240 h. Time is
//! walked in minutes: in each minute a zone changes with the hazard that its law has at the age of the spell, and the zones' draws of one
//! minute are normal numbers with a common part (a Gaussian copula). A low draw shuts an open zone and a high one opens a shut zone, so
//! a bad minute for the region is bad for all of its zones, while each zone alone keeps its law.

use crate::world::draw::{Seed, Stream};

/// How long a spell lasts: the logarithm of its hours is normal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpellLaw {
    /// Mean of the logarithm of the hours.
    pub mu: f64,
    /// Its standard deviation.
    pub sigma: f64,
}

/// The law of a region's zones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ZoneLaw {
    /// How long capacity is there.
    pub open: SpellLaw,
    /// How long there is none.
    pub shut: SpellLaw,
    /// Correlation of the zones' draws.
    pub coupling: f64,
}

/// The good AWS zones: V100 in us-west-2 a, b and c, 45 days of 2023, there 88 to 91 % of the time and reclaimed 0.09 to 0.16 times an
/// hour (`SkyNomad`'s probes, github.com/andylizf/skynomad-artifact). The coupling is that of the draws which makes what was measured, a correlation of 0.43 between the
/// zones' availability; a test holds the two together.
pub const GOOD: ZoneLaw =
    ZoneLaw { open: SpellLaw { mu: 0.28, sigma: 1.74 }, shut: SpellLaw { mu: -0.68, sigma: 0.96 }, coupling: 0.955 };

/// The same zones with that correlation between the draws themselves, which leaves their availability nearly independent (0.03).
pub const GOOD_APART: ZoneLaw = ZoneLaw { coupling: 0.43, ..GOOD };

/// A step of the walk, in seconds. A spell of the fitted traces lasts three of them at least.
const STEP: i64 = 60;
/// No spell is longer, in hours: where the measured tails end.
const LONGEST: f64 = 240.0;
/// How long the walk runs before the first second, so that its beginning, at which all zones open, is forgotten.
const RUN_IN: i64 = 20 * 86_400;

/// When some zones have spot capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// Per zone: the seconds at which it changes, rising. Before the first it is open if `first_open`.
    zones: Vec<Zone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Zone {
    first_open: bool,
    changes: Vec<i64>,
}

impl Availability {
    /// Draws `seconds` of so many zones.
    pub fn draw(seed: u64, zone_law: &ZoneLaw, zones: usize, seconds: i64) -> Self {
        let seed = Seed(seed);
        // Their names are what they are drawn from: others would draw other months.
        let mut region = seed.stream("weather of the region", &[], 0);
        let mut own: Vec<Stream> = (0..zones).map(|zone| seed.stream("weather", &[], index(zone))).collect();
        let (common, rest) = (zone_law.coupling.sqrt(), (1.0 - zone_law.coupling).sqrt());
        let mut walks = vec![Walk { open: true, since: -RUN_IN }; zones];
        let mut made: Vec<Zone> = vec![Zone { first_open: true, changes: Vec::new() }; zones];
        let mut t = -RUN_IN;
        while t < seconds {
            let shared = region.normal();
            for ((walk, zone), own) in walks.iter_mut().zip(&mut made).zip(&mut own) {
                let draw = common * shared + rest * own.normal();
                if !walk.changes(zone_law, t, draw) {
                    continue;
                }
                *walk = Walk { open: !walk.open, since: t };
                if t <= 0 {
                    zone.first_open = walk.open;
                } else {
                    zone.changes.push(t);
                }
            }
            t += STEP;
        }
        Self { zones: made }
    }

    /// Zones.
    pub const fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Whether a zone has capacity at `t`.
    pub fn is_open(&self, zone: usize, t: i64) -> bool {
        self.zones.get(zone).is_some_and(|z| z.first_open == z.changes.partition_point(|at| *at <= t).is_multiple_of(2))
    }

    /// When a zone that is open at `t` shuts; `None` where it does not before what is drawn ends.
    pub fn shuts_after(&self, zone: usize, t: i64) -> Option<i64> {
        let zone = self.zones.get(zone)?;
        zone.changes.get(zone.changes.partition_point(|at| *at <= t)).copied()
    }

    /// Seconds between two moments in which no zone had capacity.
    pub fn all_shut(&self, from: i64, until: i64) -> i64 {
        let mut moments: Vec<i64> = self.changes().filter(|at| (from + 1..until).contains(at)).chain([from, until]).collect();
        moments.sort_unstable();
        let shut = |at| (0..self.zones()).all(|zone| !self.is_open(zone, at));
        moments.windows(2).map(|pair| if shut(pair[0]) { pair[1] - pair[0] } else { 0 }).sum()
    }

    /// Every moment at which any zone changes, in no order.
    pub fn changes(&self) -> impl Iterator<Item = i64> {
        self.zones.iter().flat_map(|zone| zone.changes.iter().copied())
    }
}

#[derive(Debug, Clone, Copy)]
struct Walk {
    open: bool,
    since: i64,
}

impl Walk {
    /// Whether the state ends in the step from `t` on, by a normal draw.
    fn changes(self, zone_law: &ZoneLaw, t: i64, draw: f64) -> bool {
        let law = if self.open { zone_law.open } else { zone_law.shut };
        let hours = |seconds: i64| f64::from(i32::try_from(seconds).unwrap_or(i32::MAX)) / 3600.0;
        let age = hours(t - self.since);
        if age >= LONGEST {
            return true;
        }
        // The hazard of the middle of the step.
        let step = hours(STEP);
        let p = 1.0 - (-law.hazard(age + step / 2.0) * step).exp();
        normal_cdf(if self.open { draw } else { -draw }) < p
    }
}

impl SpellLaw {
    /// How likely the end is in an hour at that age, in hours.
    fn hazard(self, age: f64) -> f64 {
        let z = (age.ln() - self.mu) / self.sigma;
        let density = (-z * z / 2.0).exp() / (std::f64::consts::TAU.sqrt() * self.sigma * age);
        density / normal_cdf(-z)
    }
}

/// Share of normal numbers below `z`, to 10⁻⁷: Abramowitz and Stegun 26.2.17.
fn normal_cdf(z: f64) -> f64 {
    const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if z > 0.0 { 1.0 - tail } else { tail }
}

fn index(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let (ma, mb) = (mean(a), mean(b));
        let cov = |x: &[f64], mx: f64, y: &[f64], my: f64| x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>();
        cov(a, ma, b, mb) / (cov(a, ma, a, ma) * cov(b, mb, b, mb)).sqrt()
    }

    /// The measured figures that the model is made to have: what good zones offer, and how alike they are.
    #[test]
    fn zones_are_as_often_open_and_as_alike_as_measured() {
        const DAYS: i64 = 1_000;
        let availability = Availability::draw(1, &GOOD, 3, DAYS * DAY);
        let sample = |zone| (0..DAYS * 24).map(|hour| f64::from(u8::from(availability.is_open(zone, hour * 3600)))).collect();
        let samples: [Vec<f64>; 3] = [0, 1, 2].map(sample);
        let open = samples.iter().flatten().sum::<f64>() / (3.0 * 24.0 * DAYS as f64);
        assert!((0.86..0.91).contains(&open), "{open}");
        let alike = [(0, 1), (0, 2), (1, 2)].map(|(a, b)| correlation(&samples[a], &samples[b])).iter().sum::<f64>() / 3.0;
        assert!((0.36..0.50).contains(&alike), "{alike}");
        let shut = availability.zones.iter().map(|zone| zone.changes.len()).sum::<usize>() as f64 / 2.0;
        let an_hour = shut / (3.0 * 24.0 * DAYS as f64 * open);
        assert!((0.09..0.20).contains(&an_hour), "{an_hour}");
    }

    #[test]
    fn a_zone_is_open_until_it_shuts() {
        let zone = Zone { first_open: true, changes: vec![60, 180] };
        let availability = Availability { zones: vec![zone] };
        assert_eq!([0, 59, 60, 179, 180].map(|t| availability.is_open(0, t)), [true, true, false, false, true]);
        assert_eq!(
            (availability.shuts_after(0, 0), availability.shuts_after(0, 59), availability.shuts_after(0, 200)),
            (Some(60), Some(60), None)
        );
    }

    #[test]
    fn normal_shares_are_those_of_the_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998), (-3.0, 0.001_350)] {
            assert!((normal_cdf(z) - share).abs() < 1e-6, "{z}");
        }
    }
}
