//! Hazard of a spot market: how often its nodes are reclaimed, in reclaims per 10⁹ node-hours.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::units::Milli;

/// The prior where no table has a rate: the worst of the three good AWS zones that were measured (V100 in us-west-2, 0.16 reclaims per
/// node-hour: `SkyNomad`'s probes of 2023, github.com/andylizf/skynomad-artifact). Unknown is never taken for safe.
pub const ASSUMED_HAZARD: Hazard = Hazard(160_000_000);

/// The hazard that a table's worst band would mean: a quarter of the nodes a month, as AWS's advisor says it. Published rates order
/// the markets well and say little of GPUs: they are 100 to 400 times milder than what GPU nodes were measured to do (0.14 to 1 an hour:
/// `SkyNomad`'s probes) and than what operators report (one in 6 to 20 h). So the worst band counts as [`ASSUMED_HAZARD`], and the
/// others in proportion.
const WORST_PUBLISHED: Hazard = Hazard(394_085);

/// How often nodes of a spot market are reclaimed, in reclaims per 10⁹ node-hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hazard(pub u64);

impl Hazard {
    /// The constant hazard under which this share of nodes is reclaimed in a month: −ln(1 − p) ÷ 730 h. Nothing is certain: a share of
    /// one counts as 99.9 %.
    ///
    /// Exact to the unit: the logarithm is in 10⁻¹², each of its terms is cut by less than one of those, and there are fewer than 30.
    pub fn from_monthly(share: Milli) -> Self {
        const ONE: u128 = 1_000_000_000_000;
        const LN_2: u128 = 693_147_180_560;
        // q = 1 − p, scaled up by 2ᵏ to lie in (½, 1], so that the series below falls by at least 9 a term.
        let mut kept = u128::from(1000 - share.0.min(999)) * (ONE / 1000);
        let mut log = 0;
        while kept <= ONE / 2 {
            kept *= 2;
            log += LN_2;
        }
        // −ln q = 2 (y + y³/3 + y⁵/5 + …) with y = (1 − q) ÷ (1 + q).
        let y = (ONE - kept) * ONE / (ONE + kept);
        let (mut power, mut odd) = (y, 1);
        while power > 0 {
            log += 2 * power / odd;
            power = power * y / ONE * y / ONE;
            odd += 2;
        }
        // 10⁻¹² of a month's reclaims to 10⁻⁹ of an hour's.
        Self(u64::try_from((log + 365_000) / 730_000).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To two digits that count, as no estimate of a hazard has more; a published rate is some ten-thousandths.
        let digits = self.0.checked_ilog10().unwrap_or(0);
        let shown = 10_u64.pow(digits.saturating_sub(1));
        let rounded = (self.0 + shown / 2) / shown * shown;
        let text = format!("{}.{:09}", rounded / 1_000_000_000, rounded % 1_000_000_000);
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// What is believed of a spot market before any node of one's own ran there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prior {
    /// A table has a rate.
    Published {
        /// Share of nodes reclaimed per month.
        per_month: Milli,
        /// What that is taken for, as a hazard.
        hazard: Hazard,
    },
    /// None has: [`ASSUMED_HAZARD`].
    Assumed,
}

impl Prior {
    /// The prior that follows from a table's rate, if there is one.
    pub fn of(per_month: Option<Milli>) -> Self {
        per_month.map_or(Self::Assumed, |per_month| {
            let published = u128::from(Hazard::from_monthly(per_month).0);
            let hazard = published * u128::from(ASSUMED_HAZARD.0) / u128::from(WORST_PUBLISHED.0);
            Self::Published { per_month, hazard: Hazard(u64::try_from(hazard).unwrap_or(u64::MAX)) }
        })
    }

    /// The hazard.
    pub const fn hazard(&self) -> Hazard {
        match self {
            Self::Published { hazard, .. } => *hazard,
            Self::Assumed => ASSUMED_HAZARD,
        }
    }
}

/// `7.5%`.
pub(crate) fn percent(share: Milli) -> String {
    match (share.0 / 10, share.0 % 10) {
        (whole, 0) => format!("{whole}%"),
        (whole, tenths) => format!("{whole}.{tenths}%"),
    }
}
