use std::collections::BTreeMap;

use super::*;

/// A world in which everything happens.
fn eventful(seed: u64) -> WorldConfig {
    let mut config = WorldConfig { seed, ..WorldConfig::default() };
    config.reclaims.per_hour = 1.0;
    config.spells.spot_share = 0.5;
    config.api.error_rate = 0.1;
    config.api.partial_listing_rate = 0.1;
    config
}

/// All markets of the book, those that cannot be ordered included.
fn markets() -> Vec<Market> {
    book().entries().map(|(market, _)| market.clone()).collect()
}

/// One minute's calls: launches everywhere, an observation, terminations. Returns all that was said.
fn minute(
    world: &mut World,
    minute: usize,
    order: impl Fn(&mut Vec<LaunchRequest>),
) -> (BTreeMap<LaunchKey, LaunchOutcome>, String) {
    let now = at(i64::try_from(minute).unwrap() * 60);
    let markets = markets();
    let mut requests: Vec<_> = markets.iter().enumerate().map(|(n, market)| request(minute / 3 * 100 + n, market)).collect();
    order(&mut requests);
    let launched = world.launch(now, &cluster(), &requests).into_iter().collect();
    let observed = world.observe(now, &cluster());
    let victims: Vec<_> = observed.iter().flat_map(|seen| seen.instances.keys().skip(minute % 5).step_by(5).cloned()).collect();
    let ended = world.terminate(now, &victims);
    (launched, format!("{observed:?} {ended:?} {:?}", world.next_event(now)))
}

#[test]
fn the_same_calls_make_the_same_world() {
    let (mut one, mut other) = (world(eventful(5)), world(eventful(5)));
    for n in 0..120 {
        assert_eq!(minute(&mut one, n, |_| {}), minute(&mut other, n, |_| {}), "minute {n}");
    }
    let mut different = world(eventful(6));
    assert_ne!(minute(&mut world(eventful(5)), 0, |_| {}), minute(&mut different, 0, |_| {}));
}

#[test]
fn the_order_of_calls_between_markets_changes_nothing() {
    let (mut one, mut other) = (world(eventful(5)), world(eventful(5)));
    for n in 0..120 {
        assert_eq!(minute(&mut one, n, |_| {}), minute(&mut other, n, |requests| requests.reverse()), "minute {n}");
    }
}

#[test]
fn one_market_more_shifts_no_other() {
    let mut larger = book();
    larger.insert(market("use1-az0", "g6.xlarge", SPOT), price(400_000, QuoteKind::Spot));
    let mut one = world(eventful(5));
    let mut other = World::new(eventful(5), &larger, start()).unwrap();
    for n in 0..120 {
        launch(&mut other, at(i64::try_from(n).unwrap() * 60), 1_000_000 + n, &[market("use1-az0", "g6.xlarge", SPOT)]);
        let requests: Vec<_> = markets().iter().enumerate().map(|(m, market)| request(n * 100 + m, market)).collect();
        let now = at(i64::try_from(n).unwrap() * 60);
        assert_eq!(one.launch(now, &cluster(), &requests), other.launch(now, &cluster(), &requests));
    }
}

#[test]
fn a_restored_world_goes_on_as_if_nothing_had_been() {
    for seed in 0..5 {
        let mut whole = world(eventful(seed));
        let mut parts = world(eventful(seed));
        let mut store = BTreeMap::new();
        for n in 0..180 {
            assert_eq!(minute(&mut whole, n, |_| {}), minute(&mut parts, n, |_| {}), "seed {seed} minute {n}");
            store.extend(parts.take_dirty());
            if n % 7 == 3 {
                let rows = store.values().cloned().collect();
                parts = World::restore(eventful(seed), &book(), start(), rows).unwrap();
            }
        }
        assert!(store.len() > 100, "{}", store.len());
    }
}

#[test]
fn only_what_changed_is_dirty() {
    let mut world = world(calm());
    let id = launch_one(&mut world, at(0), 1, &l4()).provider_id;
    launch_one(&mut world, at(0), 2, &l4());
    assert_eq!(world.take_dirty().len(), 2);
    launch_one(&mut world, at(1), 1, &l4());
    world.advance(at(1_000));
    assert!(world.take_dirty().is_empty());
    world.terminate(at(1_000), std::slice::from_ref(&id));
    world.terminate(at(1_001), std::slice::from_ref(&id));
    let dirty = world.take_dirty();
    assert_eq!(dirty.len(), 1);
    assert_eq!(dirty[0].1.stopping, Some(Window { said_at: at(1_000), gone_at: at(1_030) }));
}

#[test]
fn a_market_that_left_the_book_keeps_its_machines() {
    let mut world = world(calm());
    let id = launch_one(&mut world, at(0), 1, &l4()).provider_id;
    let rows = world.take_dirty().into_iter().map(|(_, row)| row).collect();
    let mut world = World::restore(calm(), &PriceBook::new(), start(), rows).unwrap();
    assert!(state(&mut world, at(9_999), &id).is_some());
    assert!(!world.sells(&l4()));
    let again = launch_one(&mut world, at(9_999), 1, &l4());
    assert_eq!(again.provider_id, id);
}

#[test]
fn no_configuration_that_is_accepted_panics() {
    let extremes = [0, 1, 3_600, 604_800];
    let book = book();
    for seed in 0..40_u64 {
        let mut pick = super::super::draw::Seed(seed).stream("config", &[], 0);
        let mut seconds = || extremes[usize::try_from(pick.up_to(3)).unwrap()];
        let mut config = WorldConfig { seed: u64::MAX - seed, stop_seconds: seconds(), ..WorldConfig::default() };
        (config.boot.median_seconds, config.reclaims.notice_seconds) = (seconds(), seconds());
        (config.reclaims.spread_seconds, config.reclaims.stock_out_seconds) = (seconds(), seconds());
        config.boot.clouds.clear();
        config.stock.plenty = [0, 1, 7, u32::MAX][usize::try_from(seed % 4).unwrap()];
        config.boot.sigma = [0.0, 3.0][usize::try_from(seed % 2).unwrap()];
        config.reclaims.per_hour = [0.0, 60.0, 1e-300, 1.0][usize::try_from(seed / 2 % 4).unwrap()];
        config.spells.spot_share = 1.0;
        config.spells.on_demand_share = 1.0;
        config.spells.in_stock = SpellLength { median_hours: 0.05, sigma: 3.0 };
        config.api.error_rate = [0.0, 0.5, 1.0][usize::try_from(seed % 3).unwrap()];
        config.api.partial_listing_rate = 1.0;
        let start = [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH][usize::try_from(seed / 3 % 3).unwrap()];
        let mut world = World::new(config, &book, start).unwrap();
        for (n, now) in
            [Timestamp::MIN, start, Timestamp::UNIX_EPOCH, at(0), at(7_000_000), Timestamp::MAX].into_iter().enumerate()
        {
            let requests: Vec<_> = markets().iter().enumerate().map(|(m, market)| request(n * 100 + m, market)).collect();
            world.launch(now, &cluster(), &requests);
            let ids: Vec<_> = world.observe(now, &cluster()).iter().flat_map(|seen| seen.instances.keys().cloned()).collect();
            world.terminate(now, &ids[..ids.len() / 2]);
            world.next_event(now);
            world.market_facts(now);
        }
    }
}
