//! What the cloud announces: that it will take the machine away, or perhaps, or for a while.
//!
//! Each cloud's metadata service is asked over plain HTTP on the machine's own link. What is announced stands until the service says
//! otherwise; a service that does not answer has withdrawn nothing. One that is absent is asked ever less often.
//!
//! The first answer withdraws what an earlier process may have told, unless it stands: the provider remembers, and this process does not.

mod aws;
mod azure;
mod gcp;
mod http;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stoker_proto::probe::interruption::Kind;
use stoker_proto::probe::{Event, Interruption, event};
use tokio_util::sync::CancellationToken;

use crate::sample::now;
pub use http::{Fault, Service};

/// The longest pause between two questions to a service that does not answer.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Where every cloud has its service.
const LINK_LOCAL: &str = "http://169.254.169.254";

/// Whose machine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cloud {
    /// Spot interruptions and rebalance recommendations, by version 2 of its metadata service.
    Aws,
    /// Preemption and host maintenance.
    Gcp,
    /// Scheduled events.
    Azure,
    /// No service is asked.
    None,
    /// By what the machine's firmware says; no service where it says nothing of these.
    Auto,
}

impl Cloud {
    /// Settles [`Cloud::Auto`] by the DMI tables under this root (`/sys`), which costs three reads.
    #[must_use]
    pub fn settled(self, sys: &Path) -> Self {
        if self != Self::Auto {
            return self;
        }
        let read = |name: &str| std::fs::read_to_string(sys.join("class/dmi/id").join(name)).unwrap_or_default();
        // What Azure's documentation gives for telling its machines from other Hyper-V ones.
        if read("chassis_asset_tag").trim() == "7783-7084-3265-9085-8269-3286-77" {
            return Self::Azure;
        }
        match read("sys_vendor").trim() {
            "Amazon EC2" => Self::Aws,
            "Google" => Self::Gcp,
            _ => Self::None,
        }
    }
}

/// Something announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    kind: Kind,
    deadline: Option<Timestamp>,
    /// The cloud's own words. Two with the same words are the same.
    detail: String,
}

impl Notice {
    fn told(&self) -> Interruption {
        self.told_as(self.kind)
    }

    fn told_as(&self, kind: Kind) -> Interruption {
        let deadline =
            self.deadline.map(|at| stoker_proto::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() });
        Interruption { kind: kind.into(), deadline, detail: self.detail.clone() }
    }
}

/// Where to ask, other than a cloud's own way.
#[derive(Debug, Clone, Default)]
pub struct Elsewhere {
    /// `http://host:port` of the metadata service.
    pub base: Option<String>,
    /// Between two questions.
    pub period: Option<Duration>,
}

/// Follows the cloud's announcements until told to stop.
pub async fn follow(cloud: Cloud, elsewhere: Elsewhere, tell: impl Fn(Event), stop: CancellationToken) {
    let Elsewhere { base, period } = elsewhere;
    let at = || Service::at(base.as_deref().unwrap_or(LINK_LOCAL));
    let places = if matches!(cloud, Cloud::Aws | Cloud::Gcp) { 2 } else { 1 };
    let ledger = Ledger { standing: Mutex::default(), places, tell };
    match cloud {
        Cloud::None | Cloud::Auto => {}
        Cloud::Aws => {
            let period = period.unwrap_or(aws::PERIOD);
            let follow = |place, key| poll(period, &ledger, place, stop.clone(), aws::Metadata::new(at(), key));
            tokio::join!(follow(0, &aws::INTERRUPTION), follow(1, &aws::REBALANCE));
        }
        Cloud::Azure => {
            poll(period.unwrap_or(azure::PERIOD), &ledger, 0, stop, azure::Metadata::new(at())).await;
        }
        Cloud::Gcp => {
            // The service answers when something changes; there is no pause but after an error.
            let follow = |place, key| poll(Duration::ZERO, &ledger, place, stop.clone(), gcp::Hanging::new(at(), key));
            tokio::join!(follow(0, &gcp::PREEMPTED), follow(1, &gcp::MAINTENANCE));
        }
    }
}

/// A metadata service.
trait Source {
    /// What is announced now.
    fn standing(&mut self) -> impl Future<Output = Result<Vec<Notice>, Fault>> + Send;
}

async fn poll(
    period: Duration,
    ledger: &Ledger<impl Fn(Event)>,
    place: usize,
    stop: CancellationToken,
    mut source: impl Source,
) {
    let mut failures = 0;
    loop {
        let Some(answer) = unless_stopped(&stop, source.standing()).await else { return };
        let pause = match answer {
            Ok(announced) => {
                failures = 0;
                ledger.enter(place, announced);
                period
            }
            Err(fault) => {
                if failures == 0 {
                    tracing::info!(%fault, "the metadata service does not answer; its earlier announcements still hold");
                }
                failures += 1;
                pause(failures)
            }
        };
        if unless_stopped(&stop, tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// What stands, of all that is followed.
struct Ledger<T> {
    /// By the place of whoever announced it.
    standing: Mutex<BTreeMap<usize, Vec<Notice>>>,
    /// How many places there are.
    places: usize,
    tell: T,
}

impl<T: Fn(Event)> Ledger<T> {
    /// Tells what has changed now that this is announced at that place.
    fn enter(&self, place: usize, announced: Vec<Notice>) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<Notice> = standing.values().flatten().cloned().collect();
        let was_whole = standing.len() == self.places;
        standing.insert(place, announced);
        let after: Vec<Notice> = standing.values().flatten().cloned().collect();
        if standing.len() == self.places && !was_whole {
            for told in first(&after) {
                self.tell(told);
            }
            return;
        }
        for told in changes(&before, &after) {
            tracing::warn!(kind = told.kind().as_str_name(), detail = told.detail, "the cloud announces");
            self.tell(told);
        }
    }

    fn tell(&self, told: Interruption) {
        (self.tell)(Event { number: 0, at: Some(now()), kind: Some(event::Kind::Interruption(told)) });
    }
}

/// 1 s after the first failure, twice as long after each further one.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(6)).min(LONGEST_PAUSE)
}

async fn unless_stopped<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = stop.cancelled() => None,
        done = work => Some(done),
    }
}

/// What is told once all that is followed has answered for the first time. Nothing is graver than the end of the machine: where that stands,
/// no older notice hides it, and none need be withdrawn.
fn first(standing: &[Notice]) -> Vec<Interruption> {
    let ends = standing.iter().any(|notice| notice.kind == Kind::Reclaim);
    let nothing = Interruption {
        kind: Kind::Withdrawn.into(),
        deadline: None,
        detail: "what an earlier process of the probe reported".to_owned(),
    };
    let withdrawn = (!ends).then_some(nothing);
    for notice in standing {
        tracing::warn!(kind = notice.kind.as_str_name(), detail = notice.detail, "the cloud announces");
    }
    withdrawn.into_iter().chain(standing.iter().map(Notice::told)).collect()
}

/// What is new, and what no longer stands. After an end, what still stands is told again: nobody need remember what it was that ended.
fn changes(before: &[Notice], after: &[Notice]) -> Vec<Interruption> {
    // One that only moved to another time is told anew, and is not withdrawn.
    let gone: Vec<_> = before.iter().filter(|notice| !after.iter().any(|other| other.kind == notice.kind)).collect();
    let told = after.iter().filter(|notice| !gone.is_empty() || !before.contains(notice)).map(Notice::told);
    gone.iter().map(|notice| notice.told_as(Kind::Withdrawn)).chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(kind: Kind, detail: &str) -> Notice {
        Notice { kind, deadline: None, detail: detail.to_owned() }
    }

    fn kinds(before: &[Notice], after: &[Notice]) -> Vec<Kind> {
        changes(before, after).iter().map(Interruption::kind).collect()
    }

    #[test]
    fn each_change_is_told_once_and_an_end_as_withdrawn() {
        let (reclaim, later) = (notice(Kind::Reclaim, "at 1"), notice(Kind::Reclaim, "at 2"));
        let rebalance = notice(Kind::Rebalance, "now");
        assert_eq!(kinds(&[], std::slice::from_ref(&rebalance)), [Kind::Rebalance]);
        assert_eq!(kinds(std::slice::from_ref(&rebalance), &[rebalance.clone(), reclaim.clone()]), [Kind::Reclaim]);
        assert_eq!(kinds(&[rebalance.clone(), reclaim.clone()], &[rebalance.clone(), reclaim.clone()]), []);
        assert_eq!(kinds(std::slice::from_ref(&reclaim), std::slice::from_ref(&later)), [Kind::Reclaim]);
        assert_eq!(kinds(&[rebalance.clone(), reclaim], std::slice::from_ref(&rebalance)), [Kind::Withdrawn, Kind::Rebalance]);
    }

    #[test]
    fn the_first_answer_withdraws_what_an_earlier_process_told_unless_the_machine_ends() {
        let told: Mutex<Vec<Kind>> = Mutex::default();
        let took = || std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
        let begin = |places| Ledger {
            standing: Mutex::default(),
            places,
            tell: |event: Event| {
                if let Some(event::Kind::Interruption(of)) = event.kind {
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(of.kind());
                }
            },
        };
        for (standing, expected) in [
            (vec![], vec![Kind::Withdrawn]),
            (vec![notice(Kind::Rebalance, "now")], vec![Kind::Withdrawn, Kind::Rebalance]),
            (vec![notice(Kind::Reclaim, "at 1")], vec![Kind::Reclaim]),
        ] {
            let ledger = begin(1);
            ledger.enter(0, standing.clone());
            assert_eq!(took(), expected);
            ledger.enter(0, standing);
            assert_eq!(took(), [], "told once");
        }
        // Of two places, one alone tells what stands there and not that nothing else does.
        let ledger = begin(2);
        ledger.enter(1, vec![notice(Kind::Maintenance, "soon")]);
        assert_eq!(took(), [Kind::Maintenance]);
        ledger.enter(0, Vec::new());
        assert_eq!(took(), [Kind::Withdrawn, Kind::Maintenance]);
    }

    #[test]
    fn an_absent_service_is_asked_ever_less_often() {
        assert_eq!([1, 2, 3, 7, 100].map(|failures| pause(failures).as_secs()), [1, 2, 4, 60, 60]);
    }

    #[test]
    fn the_cloud_is_told_by_the_firmware() -> std::io::Result<()> {
        for (file, text, cloud) in [
            ("sys_vendor", "Amazon EC2\n", Cloud::Aws),
            ("sys_vendor", "Google\n", Cloud::Gcp),
            ("sys_vendor", "QEMU\n", Cloud::None),
            ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", Cloud::Azure),
        ] {
            let sys = tempfile::tempdir()?;
            let dmi = sys.path().join("class/dmi/id");
            std::fs::create_dir_all(&dmi)?;
            std::fs::write(dmi.join(file), text)?;
            assert_eq!(Cloud::Auto.settled(sys.path()), cloud);
            assert_eq!(Cloud::None.settled(sys.path()), Cloud::None);
        }
        Ok(())
    }
}
