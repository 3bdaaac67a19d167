use futures::future::{BoxFuture, join_all, ready};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, InstanceType, NodeGroupId, Region, ZoneId, ZoneName};
use stoker_core::facts::supply::LaunchRequest;
use stoker_core::market::offer::{CapacityType, Market, Place};
use tokio::time::Instant;

use super::*;
use crate::suppliers::Pace;

/// A supplier that takes two calls a second, and answers each at once.
struct Slow(SupplierName);

impl Supplier for Slow {
    fn name(&self) -> &SupplierName {
        &self.0
    }

    fn max_in_flight(&self) -> usize {
        100
    }

    fn pace(&self) -> Option<Pace> {
        Pace::per_second(2.0, 1)
    }

    fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        let outcome = |launch: Launch| (launch.request.key, LaunchOutcome::unclear(now.to_string()));
        ready(batch.into_iter().map(outcome).collect()).boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        ready(Ok(Observation::complete(now, BTreeMap::new()))).boxed()
    }

    fn terminate(&self, _: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        ready(ids.into_iter().map(|id| (id, Ok(()))).collect()).boxed()
    }

    fn market_facts(&self, _: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        ready(Ok(MarketFacts::default())).boxed()
    }
}

fn launch(n: usize) -> Launch {
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new("g6.xlarge").unwrap(),
    };
    let request = LaunchRequest {
        key: LaunchKey::new(format!("test/g/0c4de2a1/{n}/1")).unwrap(),
        group: NodeGroupId::new("g").unwrap(),
        zone_name: ZoneName::from(&place.zone),
        market: Market { place, capacity_type: CapacityType::OnDemand },
        reservation: None,
    };
    request.into()
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_turn_and_none_is_lost() {
    let supplier = LimitedSupplier::new(Arc::new(Slow(SupplierName::new("slow").unwrap())));
    let (begun, now) = (Instant::now(), "2026-11-01T00:00:00Z".parse().unwrap());
    let outcomes = join_all((0..10).map(|n| supplier.launch(now, vec![launch(n)]))).await.concat();
    assert_eq!(begun.elapsed().as_millis(), 4500);
    let keys: Vec<LaunchKey> = (0..10).map(|n| launch(n).request.key).collect();
    assert_eq!(outcomes.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), keys);
    // A call is made at the time of its turn.
    assert_eq!(outcomes.last().unwrap().1, LaunchOutcome::unclear("2026-11-01T00:00:04.5Z"));
    // Ends have turns among them, and listings do not wait.
    assert!(supplier.observe(now).await.is_ok());
    assert_eq!(begun.elapsed().as_millis(), 4500);
    supplier.terminate(now, vec![ProviderId::new("test:///1").unwrap()]).await;
    assert_eq!(begun.elapsed().as_millis(), 5000);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_turn_is_no_part_of_the_time_to_answer() {
    let supplier = LimitedSupplier::new(Arc::new(Slow(SupplierName::new("slow").unwrap())));
    let now = Timestamp::UNIX_EPOCH;
    let outcomes = join_all((0..200).map(|n| supplier.launch(now, vec![launch(n)]))).await.concat();
    assert_eq!(outcomes.len(), 200);
}
