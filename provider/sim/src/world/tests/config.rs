use super::*;

/// The world that ships as an example.
const EXAMPLE: &str = include_str!("../../../../../manifests/examples/world.yaml");

fn read(yaml: &str) -> WorldConfig {
    serde_saphyr::from_str(yaml).unwrap()
}

fn faults(yaml: &str) -> Vec<String> {
    World::new(read(yaml), &book(), start()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_file_is_the_default_world() {
    assert_eq!(read("{}"), WorldConfig::default());
    assert!(WorldConfig::default().faults().is_empty());
}

#[test]
fn the_example_is_the_default_world_written_out() {
    let written: serde_json::Value = serde_saphyr::from_str(EXAMPLE).unwrap();
    let default = serde_json::to_value(WorldConfig::default()).unwrap();
    assert_eq!(written, default);
    // What it shows in comments works, too.
    let comments: String =
        EXAMPLE.lines().filter_map(|line| line.strip_prefix("#   ")).fold(String::new(), |all, line| all + line + "\n");
    let shown = read(&comments);
    assert!(!shown.markets.is_empty() && !shown.broken_images.is_empty() && !shown.stock_outs.is_empty());
    assert!(!shown.quotas.is_empty() && !shown.reservations.is_empty());
    assert_eq!(shown.faults(), []);
}

#[test]
fn defaults_are_as_documented() {
    let WorldConfig {
        seed,
        stock,
        boot,
        stop_seconds,
        reclaims,
        spells,
        api,
        markets,
        broken_images,
        stock_outs,
        quotas,
        reservations,
    } = WorldConfig::default();
    assert_eq!((seed, stop_seconds), (1, 30));
    assert_eq!(stock, StockConfig { plenty: 64, some: 32, scarce: 16 });
    let clouds = [("aws", 150), ("azure", 300), ("gcp", 180)].map(|(cloud, s)| (cloud.to_owned(), s)).into();
    assert_eq!(boot, BootConfig { median_seconds: 150, sigma: 0.3, clouds });
    let clouds = [("aws", 120), ("azure", 30), ("gcp", 30)].map(|(cloud, s)| (cloud.to_owned(), s)).into();
    let expected = ReclaimConfig { per_hour: 0.15, notice_seconds: 30, clouds, spread_seconds: 180, stock_out_seconds: 1800 };
    assert_eq!(reclaims, expected);
    let expected = SpellConfig {
        spot_share: 0.05,
        on_demand_share: 0.0,
        in_stock: SpellLength { median_hours: 1.28, sigma: 1.62 },
        out_of_stock: SpellLength { median_hours: 0.76, sigma: 1.32 },
    };
    assert_eq!(spells, expected);
    let latency_ms = LatencyConfig { min: 50, max: 400 };
    assert_eq!(api, ApiConfig { error_rate: 0.0, latency_ms, partial_listing_rate: 0.0, max_in_flight: 50 });
    assert!(markets.is_empty() && broken_images.is_empty() && stock_outs.is_empty());
    assert!(quotas.is_empty() && reservations.is_empty());
}

#[test]
fn unknown_fields_are_refused() {
    for yaml in
        ["sed: 1", "boot: {mean: 3}", "markets: [{match: {zones: [a]}, stock: 1}]", "stockOuts: [{from: 1m, for: 1m, to: 2m}]"]
    {
        assert!(serde_saphyr::from_str::<WorldConfig>(yaml).is_err(), "{yaml}");
    }
}

#[test]
fn every_fault_is_told_at_once() {
    let found = faults(
        "
boot: {sigma: -1, medianSeconds: 9999999, clouds: {awz: 100}}
reclaims: {perHour: .nan, noticeSeconds: 4000000000}
spells: {spotShare: 1.4, inStock: {medianHours: 0, sigma: 1}}
api: {errorRate: 2, latencyMs: {min: 500, max: 70000}, maxInFlight: 0}
markets:
- {match: {region: us-east-1}}
- {match: {instanceType: g6.larg*}, stock: 1}
- {match: {cloud: gcp, zone: use1-az1}, spotPrice: 0.1}
- {match: {capacityType: on-demand}, spotPrice: -1}
brokenImages: [{cloud: asw}]
stockOuts:
- {from: soon, for: 0s}
- {match: {zone: us-east-1z}, from: -5m, for: 100000h}
",
    );
    assert_eq!(
        found,
        [
            "boot.medianSeconds is 9999999, more than a week: give at most 604800",
            "boot.sigma is -1: give a number from 0 to 3",
            "reclaims.perHour is NaN: give a number from 0 to 60",
            "reclaims.noticeSeconds is 4000000000, more than a week: give at most 604800",
            "spells.spotShare is 1.4: give a number from 0 to 1",
            "spells.inStock.medianHours is 0: give a number from 0.05 to 240",
            "api.errorRate is 2: give a number from 0 to 1",
            "api.latencyMs.max is 70000: give at most 60000",
            "api.maxInFlight is 0, so that nothing could be launched: give at least 1",
            "markets[0] changes nothing: name stock, bootSeconds, reclaimsPerHour or spotPrice",
            "markets[3].spotPrice \"-1\" is negative: give the price of a node-hour",
            "markets[3].spotPrice applies to spot markets, and match.capacityType names another: remove one of them",
            "stockOuts[0].from \"soon\" is not a length of time: write it like 10m, 1h30m or 90s",
            "stockOuts[0].for is zero: give at least 1s",
            "stockOuts[1].from \"-5m\" is negative: count from the world's start",
            "stockOuts[1].for \"100000h\" is more than ten years: shorten it",
            "markets[1].match.instanceType \"g6.larg*\" is not in the price tables; did you mean g6.xlarge?",
            "markets[2].match matches no market of the price tables: these properties do not occur together",
            "brokenImages[0].cloud \"asw\" is not in the price tables; did you mean aws?",
            "stockOuts[1].match.zone \"us-east-1z\" is not in the price tables; did you mean us-east-1a?",
            "boot.clouds.awz is not a known cloud; did you mean aws?",
        ]
    );
    assert_eq!(faults("api: {latencyMs: {min: 900}}"), ["api.latencyMs.min is 900, above max 400: swap them"]);
}

#[test]
fn of_several_rows_the_last_that_names_a_field_counts() {
    let config = read(
        "markets: [{stock: 9, bootSeconds: 60}, {match: {zone: us-east-1a, capacityType: on-demand}, stock: 2}, {match: {cloud: gcp}, stock: 0}]\nboot: {sigma: 0}",
    );
    let mut world = world(config);
    assert_eq!(world.stock_left(&l4()), 2);
    assert_eq!(world.stock_left(&market("use1-az4", "g6.xlarge", ON_DEMAND)), 9);
    launch(&mut world, at(0), 0, &[l4()]);
    assert_eq!(world.next_event(at(0)), Some(at(60)));
}

#[test]
fn answers_take_as_long_as_said() {
    let world = world(read("api: {latencyMs: {min: 10, max: 20}}"));
    let all: Vec<_> = (0..200).map(|n| world.answer_latency(at(n), "launch").as_millis()).collect();
    assert_eq!((all.iter().min(), all.iter().max()), (Some(&10), Some(&20)));
    assert_eq!(world.max_in_flight(), 50);
}
