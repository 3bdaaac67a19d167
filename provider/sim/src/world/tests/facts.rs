use super::*;
use stoker_core::base::engine_clock::Wall;
use stoker_core::market::price::usable;

#[test]
fn zones_of_aws_have_the_letter_of_their_number_and_local_zones_keep_their_ids() {
    let mut book = book();
    book.insert(market("use1-atl2-az1", "g6.xlarge", ON_DEMAND), price(804_800, QuoteKind::List));
    let facts = World::new(calm(), &book, start()).unwrap().market_facts(start());
    let names: Vec<_> = facts.zone_names.iter().map(|((cloud, id), name)| format!("{cloud} {id} {name}")).collect();
    assert_eq!(names, ["aws use1-az1 us-east-1a", "aws use1-az4 us-east-1d", "aws use2-az1 us-east-2a"]);
    let clouds: Vec<_> = facts.clouds.iter().map(Cloud::as_str).collect();
    assert_eq!(clouds, ["aws", "azure", "gcp"]);
}

#[test]
fn every_spot_market_with_a_price_has_a_live_quote() {
    let now = at(299);
    let facts = world(calm()).market_facts(now);
    assert_eq!(facts.quotes.len(), 6, "{:?}", facts.quotes.keys());
    for (market, quote) in &facts.quotes {
        assert_eq!(market.capacity_type, SPOT);
        assert_eq!((quote.kind, quote.as_of, quote.source.as_ref()), (QuoteKind::Simulated, Some(start()), "simulated market"));
        assert!(usable(Some(&Entry::Price(quote.clone())), Wall(now)).is_ok());
    }
}

#[test]
fn prices_drift_slowly_within_a_tenth() {
    let mut config = calm();
    let other = MarketMatch { zone: Some("us-east-1d".into()), capacity_type: Some(SPOT), ..MarketMatch::default() };
    config.markets = vec![MarketConfig { market: other, spot_price: Some(Dollars::Number(0.8)), ..MarketConfig::default() }];
    let world = world(config);
    let (mut low, mut high, mut last) = (i64::MAX, 0, None);
    for hour in 0..24 * 60 {
        let facts = world.market_facts(at(hour * 3600));
        let price = facts.quotes[&l4_spot()].price.0;
        (low, high) = (low.min(price), high.max(price));
        // Slow: less than a fiftieth of the price in an hour.
        assert!(last.is_none_or(|last: i64| (price - last).abs() < 402_400 / 50), "{last:?} {price}");
        last = Some(price);
        // Named by the file, and never above on-demand.
        let other = facts.quotes[&market("use1-az4", "g6.xlarge", SPOT)].price.0;
        assert!((720_000..=804_800).contains(&other), "{other}");
    }
    assert!((362_160..390_000).contains(&low) && (410_000..=442_640).contains(&high), "{low} {high}");
    let at_once = |seconds| world.market_facts(at(seconds)).quotes;
    assert_eq!(at_once(0), at_once(299));
    assert_ne!(at_once(0), at_once(300));
}

#[test]
fn quotas_and_reservations_of_the_world_file_are_told_as_of_the_last_look() {
    let mut config = calm();
    let quota =
        QuotaConfig { name: "L-DB2E81BA".into(), cloud: "aws".into(), region: Some("us-east-1".into()), limit: 0, used: None };
    let reservation = ReservationConfig {
        id: "cr-0a1b".into(),
        cloud: "aws".into(),
        region: "us-east-1".into(),
        zone: "use1-az1".into(),
        instance_type: "g6.xlarge".into(),
        total: 2,
        free: Some(0),
    };
    (config.quotas, config.reservations) = (vec![quota.clone()], vec![reservation]);
    let facts = world(config.clone()).market_facts(at(299));
    let (key, fact) = facts.quotas.first_key_value().unwrap();
    assert_eq!((key.name.as_str(), fact.limit, fact.used, fact.as_of), ("L-DB2E81BA", 0, None, start()));
    let reservation = &facts.reservations["cr-0a1b"];
    assert_eq!(
        (reservation.place.to_string().as_str(), reservation.total, reservation.free),
        ("aws/use1-az1/g6.xlarge", 2, Some(0))
    );
    config.quotas[0].cloud.clear();
    assert!(config.faults()[0].path.to_string().starts_with("quotas[0]"));
}
