use super::*;
use stoker_core::facts::supply::InstanceState;

/// A world whose spot machines are taken back often.
fn stormy() -> WorldConfig {
    let mut config = calm();
    config.reclaims.per_hour = 2.0;
    config.reclaims.stock_out_seconds = 0;
    config
}

#[test]
fn a_machine_boots_when_its_time_has_come() {
    let mut world = world(calm());
    let id = launch_one(&mut world, at(0), 1, &l4()).provider_id;
    assert_eq!(world.instance(&id).unwrap().state, InstanceState::Pending);
    let ready = world.next_event(at(0)).unwrap();
    assert!((at(50)..at(500)).contains(&ready), "{ready}");
    assert!(!world.advance(ready - SignedDuration::from_secs(1)));
    assert_eq!(world.instance(&id).unwrap().state, InstanceState::Pending);
    assert!(world.advance(ready));
    assert_eq!(world.instance(&id).unwrap().state, InstanceState::Running);
    assert_eq!(world.next_event(ready), None);
}

#[test]
fn boots_spread_around_the_median_of_their_cloud() {
    let mut config = calm();
    config.stock.plenty = 1000;
    config.boot.sigma = 0.0;
    let mut exact = world(config.clone());
    launch(&mut exact, at(0), 0, &[l4(), market_of("gcp", "us-central1", "us-central1-a", "g2-standard-4", ON_DEMAND)]);
    assert_eq!(exact.next_event(at(0)), Some(at(150)));
    exact.advance(at(150));
    assert_eq!(exact.next_event(at(150)), Some(at(180)));

    config.boot.sigma = 0.3;
    let mut spread = world(config);
    launch(&mut spread, at(0), 0, &vec![l4(); 500]);
    let running = |world: &mut World, seconds| {
        let observation = world.observe(at(seconds), &cluster()).unwrap();
        observation.instances.values().filter(|instance| instance.state == InstanceState::Running).count()
    };
    assert!(running(&mut spread, 75) < 20);
    assert!((220..280).contains(&running(&mut spread, 150)));
    assert!(running(&mut spread, 300) > 480);
}

#[test]
fn a_broken_image_never_boots() {
    let mut config = calm();
    config.broken_images = vec![MarketMatch { zone: Some("us-east-1a".into()), ..MarketMatch::default() }];
    let mut world = world(config);
    let broken = launch_one(&mut world, at(0), 1, &l4()).provider_id;
    let sound = launch_one(&mut world, at(0), 2, &market("use1-az4", "g6.xlarge", ON_DEMAND)).provider_id;
    assert_eq!(state(&mut world, at(86_400), &broken), Some(InstanceState::Pending));
    assert_eq!(state(&mut world, at(86_400), &sound), Some(InstanceState::Running));
}

#[test]
fn a_notice_comes_before_the_end_by_its_time() {
    for (market, notice) in [
        (l4_spot(), 120),
        (market_of("gcp", "us-central1", "us-central1-a", "g2-standard-4", SPOT), 30),
        (market_of("azure", "eastus", "eastus-1", "Standard_NC4as_T4_v3", SPOT), 30),
    ] {
        let mut world = world(stormy());
        let id = launch_one(&mut world, at(0), 1, &market).provider_id;
        let mut now = at(0);
        let gone_at = loop {
            now = world.next_event(now).unwrap();
            world.advance(now);
            if let InstanceState::Reclaiming { at } = world.instance(&id).unwrap().state {
                break at;
            }
        };
        assert_eq!(gone_at, now + SignedDuration::from_secs(notice));
        world.advance(gone_at - SignedDuration::from_secs(1));
        assert!(world.instance(&id).is_some());
        world.advance(gone_at);
        assert!(world.instance(&id).is_none());
    }
}

#[test]
fn a_wave_takes_all_siblings_within_three_minutes_and_nobody_else() {
    let mut config = stormy();
    config.reclaims.stock_out_seconds = 600;
    let mut world = world(config);
    launch(&mut world, at(0), 0, &vec![l4_spot(); 20]);
    let other = launch_one(&mut world, at(0), 20, &l4()).provider_id;
    let mut notices = Vec::new();
    let mut now = at(0);
    while notices.len() < 20 {
        now = world.next_event(now).unwrap();
        world.advance(now);
        let seen = world.observe(now, &cluster()).unwrap();
        let taken_at = now + SignedDuration::from_secs(120);
        let is_warned = |of: &&Arc<Instance>| matches!(of.state, InstanceState::Reclaiming { at } if at == taken_at);
        let warned = seen.instances.values().filter(is_warned).count();
        notices.extend(std::iter::repeat_n(now, warned));
    }
    let (first, last) = (notices[0], notices[19]);
    assert!(last.duration_since(first) <= SignedDuration::from_secs(180), "{first} to {last}");
    assert!(last > first);
    // While it takes machines back, the market sells none.
    let outcome = launch(&mut world, last, 21, &[l4_spot()]).remove(0);
    assert_eq!(
        refusal(&outcome),
        (RefusalKind::OutOfCapacity, "no spot capacity for g6.xlarge in use1-az1: none is offered now")
    );
    assert!(state(&mut world, at(10_000_000), &other).is_some());
}

#[test]
fn reclaims_come_as_often_as_said() {
    let mut config = stormy();
    config.stock.plenty = 100_000;
    config.markets = vec![MarketConfig {
        market: MarketMatch { zone: Some("use1-az4".into()), ..MarketMatch::default() },
        reclaims_per_hour: Some(0.0),
        ..MarketConfig::default()
    }];
    let mut world = world(config);
    let spared = market("use1-az4", "g6.xlarge", SPOT);
    let mut taken = 0;
    for hour in 0..400_usize {
        let now = at(i64::try_from(hour).unwrap() * 3600);
        let id = launch_one(&mut world, now, 2 * hour, &l4_spot()).provider_id;
        let safe = launch_one(&mut world, now, 2 * hour + 1, &spared).provider_id;
        // Ten minutes at two waves an hour: 28 % do not see the end of it; the notice and its spread add five minutes.
        world.advance(now + SignedDuration::from_mins(15));
        taken += usize::from(world.instance(&id).is_none_or(|i| matches!(i.state, InstanceState::Reclaiming { .. })));
        assert_eq!(world.instance(&safe).unwrap().state, InstanceState::Running);
    }
    assert!((110..190).contains(&taken), "{taken} of 400");
}

#[test]
fn stock_outs_begin_and_end_as_written() {
    let mut config = calm();
    let market = MarketMatch { instance_type: Some("g6.*".into()), capacity_type: Some(ON_DEMAND), ..MarketMatch::default() };
    config.stock_outs = vec![StockOutConfig { market, from: "10m".into(), length: "1h30m".into() }];
    let mut world = world(config);
    let h100 = super::market("use1-az1", "p5.48xlarge", ON_DEMAND);
    let survivor = launch_one(&mut world, at(0), 0, &l4()).provider_id;
    for (seconds, sold) in [(599, true), (600, false), (5_999, false), (6_000, true)] {
        let number = usize::try_from(seconds).unwrap();
        world.advance(at(seconds));
        assert_eq!(world.stock_left(&l4()) > 0, sold, "{seconds}");
        let outcome = launch(&mut world, at(seconds), number, &[l4()]).remove(0);
        assert_eq!(matches!(outcome, LaunchOutcome::Launched(_)), sold, "{seconds}");
        assert!(world.stock_left(&l4_spot()) > 0 && world.stock_left(&h100) > 0);
    }
    assert_eq!(world.instance(&survivor).unwrap().state, InstanceState::Running);
}

#[test]
fn spells_make_a_share_of_markets_run_dry() {
    let mut config = calm();
    config.spells.spot_share = 1.0;
    let mut world = world(config);
    let dry = (0..480).filter(|half_hours| {
        world.advance(at(half_hours * 1800));
        assert!(world.stock_left(&l4()) > 0);
        world.stock_left(&l4_spot()) == 0
    });
    assert!((24..400).contains(&dry.count()));
}

#[test]
fn time_never_goes_back() {
    let mut world = world(calm());
    world.advance(at(1_000));
    let instance = launch_one(&mut world, at(5), 1, &l4());
    assert_eq!(instance.launched_at, at(1_000));
    assert_eq!(world.observe(at(7), &cluster()).unwrap().as_of(), at(1_000));
    assert!(world.next_event(at(2_000_000)).unwrap() >= at(2_000_000));
}
