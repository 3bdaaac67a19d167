use super::*;
use crate::peers::serving::{Reactive, serve};
use stoker_core::base::units::UsdPerHour;

/// Three days of a wave with noise, and twice as much for five minutes every six hours.
fn rates() -> Vec<f64> {
    let rate = |minute: u32| {
        let noise = f64::from(minute * 7_919 % 101) / 101.0;
        let wave = 100.0 + 60.0 * (f64::from(minute) / 137.0).sin() + 25.0 * noise;
        if minute % 360 < 5 { 2.0 * wave } else { wave }
    };
    (0..3 * 1440).map(rate).collect()
}

fn how(target: u32, window_seconds: u32) -> Reactive {
    let hourly = UsdPerHour(6_880_000);
    Reactive { serves: 4.0, target: Milli(target), window_seconds, lag_seconds: 60, boot_seconds: 360, hourly }
}

#[test]
fn it_follows_rates_as_the_reference_does() {
    // Target, window, and the reference's dollars, missed percent, launches and flaps.
    let table = [
        (600, 300, 26_107.765_3, 0.2474, 949, 627),
        (600, 600, 26_639.933_3, 0.22708, 881, 605),
        (800, 300, 19_643.317_3, 0.78476, 711, 478),
        (800, 600, 20_040.522_7, 0.7685, 657, 452),
    ];
    for (target, window, usd, missed, launches, flaps) in table {
        let served = serve(&rates(), 60, &how(target, window));
        assert_eq!((served.launches, served.flaps), (launches, flaps), "{target} {window}");
        assert!((dollars(served.usd.0) - usd).abs() < 0.001, "{target} {window}: {:?}", served.usd);
        assert!((served.missed_percent - missed).abs() < 1e-5, "{target} {window}: {}", served.missed_percent);
    }
    assert_eq!(serve(&[], 60, &how(600, 300)).usd.0, 0);
}
