//! What a signal counted over a time, for the unit costs of `stoker report`.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use stoker_service::feeds::prometheus::history::Counted;
use stoker_service::feeds::prometheus::{Asker, Connection};
use stoker_tests::prometheus::{Prometheus, promtool};
use tempfile::TempDir;

/// Ten hours, of which the samples of one are missing: of these Prometheus fills five minutes, as it looks back that far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus: apt-get install --no-install-recommends prometheus"]
async fn a_rate_is_summed_over_the_time_in_which_it_is_known() {
    stoker_service::listener::install_crypto();
    let dir = TempDir::new().unwrap();
    let since: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let until = since.saturating_add(SignedDuration::from_hours(10)).unwrap();
    let mut text = String::new();
    for series in ["requests{of=\"a\"} 30", "requests{of=\"b\"} 20", "absurd -1"] {
        for minute in (0..600).filter(|minute| !(240..300).contains(minute)) {
            writeln!(text, "{series} {}", since.as_second() + minute * 60).unwrap();
        }
    }
    std::fs::write(dir.path().join("earlier"), text + "# EOF\n").unwrap();
    promtool(&["tsdb", "create-blocks-from", "openmetrics", "earlier", "data"], dir.path()).await.unwrap();
    let prometheus = Prometheus::start(dir, "{}").await.unwrap();
    let asker = Asker::of_the_past(&Connection { url: prometheus.url.clone(), token_file: None, ca: None }).unwrap();
    let read = async |query: &str| Counted::read(&asker, query, (since, until)).await.map_err(|error| error.to_string());

    let counted = read("sum(requests)").await.unwrap();
    assert!((32_400..=32_760).contains(&counted.seconds), "{counted:?}");
    assert_eq!(counted.millionths, 50_000_000 * u128::try_from(counted.seconds).unwrap());
    let several = "the signal cannot be read: it gives several series at once: join them, as with sum()";
    assert_eq!(read("requests").await, Err(several.to_owned()));
    assert_eq!(read("absurd").await, Ok(Counted::default()));
    assert_eq!(read("misspelt").await, Ok(Counted::default()));
    prometheus.stop().await.unwrap();
}
