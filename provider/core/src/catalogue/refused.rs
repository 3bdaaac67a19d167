//! Refused areas: which offers of the catalogue a refusal closes.

use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::facts::supply::{RefusalScope, RefusedArea};
use crate::market::offer::{CapacityType, Market, Place};
use crate::policy::QuotaKey;
use crate::policy::rules::commitment::Commitment;

impl Catalogue {
    /// What a refusal of a launch closes, which was for a node of `group` in `market`; `None` where that is the market alone. So it is where
    /// the refusal names a quota that is not known to count such nodes, or a reservation that is not of that place: nothing is closed that
    /// the refusal may not concern.
    pub fn refused_area(&self, scope: &RefusalScope, group: &Group, market: &Market) -> Option<RefusedArea> {
        let Place { cloud, region, zone, .. } = &market.place;
        Some(match scope {
            RefusalScope::Market => return None,
            RefusalScope::TypeInZone => RefusedArea::TypeInZone(market.place.clone()),
            RefusalScope::Zone => RefusedArea::Zone(cloud.clone(), region.clone(), zone.clone()),
            RefusalScope::Quota(name) => {
                let claims = self.claims(group);
                RefusedArea::Quota(claims.under(market.capacity_type).find_quota(&self.policy, &market.place, name)?)
            }
            RefusalScope::Reservation(name) => {
                let kept =
                    |commitment: &&Commitment| commitment.name == *name && commitment.capacity_at(&market.place).is_some();
                self.policy.commitments.iter().find(kept).filter(|_| market.capacity_type == CapacityType::Reserved)?;
                RefusedArea::Reservation(market.place.clone(), name.clone())
            }
            RefusalScope::CapacityTypeInRegion => {
                RefusedArea::CapacityTypeInRegion(cloud.clone(), region.clone(), market.capacity_type)
            }
            RefusalScope::Region => RefusedArea::Region(cloud.clone(), region.clone()),
            RefusalScope::Account => RefusedArea::Account(group.supplier.clone()),
        })
    }

    /// Whether every launch for a node of `group` in `market` is in a refused area. A reservation is never all of a market: which one a node
    /// is bought from is chosen from those of the place that are left.
    pub fn is_in(&self, area: &RefusedArea, group: &Group, market: &Market) -> bool {
        let place = &market.place;
        match area {
            RefusedArea::TypeInZone(of) => of == place,
            RefusedArea::Zone(cloud, region, zone) => (cloud, region, zone) == (&place.cloud, &place.region, &place.zone),
            RefusedArea::Quota(QuotaKey { name, cloud, region }) => {
                *cloud == place.cloud
                    && region.as_ref().is_none_or(|region| *region == place.region)
                    && self.claims(group).under(market.capacity_type).count_in(&self.policy, name)
            }
            RefusedArea::Reservation(..) => false,
            RefusedArea::CapacityTypeInRegion(cloud, region, bought) => {
                (cloud, region, *bought) == (&place.cloud, &place.region, market.capacity_type)
            }
            RefusedArea::Region(cloud, region) => (cloud, region) == (&place.cloud, &place.region),
            RefusedArea::Account(of) => *of == group.supplier,
        }
    }
}
