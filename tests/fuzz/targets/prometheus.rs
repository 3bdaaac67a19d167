//! Prometheus's answers, two rounds of them: readings are of nodes that there are, of levels that
//! hardware can have, and not from the future; a demand is within its bounds.
//!
//! An input is answers, one a line. A round whose questions are more than the lines begins again with
//! the second one.

use jiff::SignedDuration;
use stoker_core::base::ids::NodeName;
use stoker_core::policy::rules::demand::Amount;
use stoker_service::feeds::prometheus::Offline;
use stoker_tests::market;

use super::probes;

/// The nodes of the cluster.
pub(crate) const NODES: [&str; 2] = ["gpu-1", "gpu-2.internal"];

pub(super) fn run(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    for line in &lines {
        if let Ok(amount) = Offline::amount(line) {
            assert!(amount <= Amount::MOST, "{amount:?}");
        }
    }
    let nodes = || NODES.map(|name| NodeName::new(name).expect("a name")).to_vec();
    let mut feed = Offline::default();
    let (stamps, levels) = lines.split_at(1);
    for round in 0..2 {
        let now = market::start() + SignedDuration::from_secs(15 * round);
        let answers = stamps.iter().chain(levels.iter().cycle()).take(Offline::QUESTIONS).copied();
        for (node, reading, events) in feed.round(answers, nodes(), now) {
            assert!(NODES.contains(&node.as_str()), "{node} is no node");
            assert!(reading.arrived <= now, "{} is after {now}", reading.arrived);
            reading.gpus.values().for_each(probes::sane);
            assert!(events.iter().all(|event| event.at <= now), "{events:?}");
            assert!(round > 0 || events.is_empty(), "what was there at first happened nobody knows when");
        }
    }
}
