//! The GPU pods that a journal has, as a demand.

use jiff::{SignedDuration, Timestamp};
use stoker_advice::spend::Known;
use stoker_journal::{Journal, Place, RecordedPod};
use stoker_service::print::count;
use stoker_sim::demand::{Pod, Resources, Service};

use super::super::exit::{CliError, NotFound};
use super::workload::LeftOut;

/// Days that are played where nothing is said: yesterday.
const DAYS: u32 = 1;

/// What of the journal is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// From then on.
    pub(super) since: Option<Timestamp>,
    /// Until then.
    pub(super) until: Option<Timestamp>,
    /// So many days before the end, where no beginning is given.
    pub(super) days: Option<u32>,
}

/// A time that is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    since: Timestamp,
    until: Timestamp,
}

impl Window {
    /// From when until when pods were recorded, with gaps or without.
    fn of(Known(known): &Known) -> Option<Self> {
        let second = |second: i64| Timestamp::from_second(second).ok();
        Some(Self { since: second(known.first()?.0)?, until: second(known.last()?.1)? })
    }
}

/// What a journal has, or a Prometheus.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Recorded {
    /// What it is, in words.
    pub(in crate::cli) shown: String,
    /// How long it lasts, in seconds.
    pub(in crate::cli) seconds: f64,
    /// Its pods, by arrival.
    pub(in crate::cli) pods: Vec<Pod>,
    /// Those that cannot be played under any policy.
    pub(in crate::cli) left_out: LeftOut,
    /// What is not as it was.
    pub(in crate::cli) notes: Vec<String>,
}

/// Reads the pods of a journal.
///
/// # Errors
/// When it cannot be read, or has no pods of that time.
pub(super) async fn read(place: Place, asked: &Asked) -> Result<Recorded, CliError> {
    let reader = Journal::open_read_only(place).await?;
    let none = |cure: String| {
        let place = format!("journal {}", reader.location());
        CliError::NotFound(NotFound { what: "GPU pod", name: String::new(), place, cure: Some(cure) })
    };
    let known = reader.pods_known().await?;
    let Some(recorded) = Window::of(&known) else {
        return Err(none(
            "pods are recorded from this release on, by a service that follows a Kubernetes cluster: run it there for a day, or give pods \
             with --workload FILE"
                .to_owned(),
        ));
    };
    if let (Some(since), Some(until)) = (asked.since, asked.until)
        && since >= until
    {
        return Err(CliError::Usage(format!("--since {since} is not before --until {until}: swap them, or leave one out")));
    }
    let Some((window, mut notes)) = window(recorded, asked) else {
        let Window { since, until } = recorded;
        return Err(none(format!("it has them from {since} to {until}; ask for a time within that")));
    };
    notes.extend(unknown(&known, window));
    let (mut pods, mut left_out) = (Vec::new(), LeftOut::default());
    let (mut running, mut unseen) = (0_u64, 0_u64);
    let each = |recorded: RecordedPod| match playable(&recorded, window) {
        _ if recorded.is_without_gpu() => {}
        Ok(pod) => {
            running += u64::from(recorded.end.is_none());
            unseen += u64::from(recorded.end.is_some_and(|end| !end.is_seen));
            pods.push(pod);
        }
        Err(why) => left_out.add(why.to_owned(), &recorded.name),
    };
    reader.each_pod(window.since, window.until, each).await?;
    if running > 0 {
        notes.push(still_running(running));
    }
    if unseen > 0 {
        let pods = count(unseen, "pod");
        notes.push(format!("ended while Stoker was away or did not see the cluster, and played until found gone: {pods}"));
    }
    let shown = format!("the journal from {} to {}", window.since, window.until);
    Ok(Recorded { shown, seconds: seconds(window.until.duration_since(window.since)), pods, left_out, notes })
}

/// What is said of pods that had not ended.
pub(in crate::cli) fn still_running(pods: u64) -> String {
    format!("still running at the end, and played until then: {}", count(pods, "pod"))
}

/// What is said of time in which pods were not recorded.
fn unknown(known: &Known, Window { since, until }: Window) -> Option<String> {
    let (from, until) = (since.as_second(), until.as_second());
    let missing = SignedDuration::from_secs(until - from - known.seconds(from, until));
    missing
        .is_positive()
        .then(|| format!("nobody looked at pods for {missing:#} of that time: those that came and went in it are missing"))
}

/// What is played of the time in which pods are known, and what is said of it; `None` where that is nothing.
fn window(known: Window, asked: &Asked) -> Option<(Window, Vec<String>)> {
    let until = asked.until.unwrap_or(known.until).min(known.until);
    let days = SignedDuration::from_hours(24 * i64::from(asked.days.unwrap_or(DAYS)));
    let wanted = asked.since.unwrap_or_else(|| until.saturating_sub(days).unwrap_or(Timestamp::MIN));
    let since = wanted.max(known.since);
    let mut notes = Vec::new();
    if wanted < since && (asked.since.is_some() || asked.days.is_some()) {
        notes.push(format!("the journal has GPU pods from {} on, not of the time before", known.since));
    }
    if asked.until.is_some_and(|asked| asked > until) {
        notes.push(format!("the journal has GPU pods until {}, not of the time after", known.until));
    }
    (since < until).then_some((Window { since, until }, notes))
}

/// The pod with times from the start of the window; or why it cannot be played.
fn playable(recorded: &RecordedPod, Window { since, until }: Window) -> Result<Pod, &'static str> {
    let Some(gpus) = recorded.gpus else {
        return Err("GPUs by a resource claim, which does not say how many");
    };
    if !recorded.slices.is_empty() {
        return Err("shares of GPUs, which a simulation does not have");
    }
    if recorded.pool.is_none() {
        return Err("no pool asked for, and a node that is not Stoker's");
    }
    let arrives = recorded.created.max(since);
    // One without an end runs to the end of the window, however early it starts.
    let runs = match recorded.end {
        Some(end) => end.at.duration_since(recorded.bound.max(since)),
        None => until.duration_since(arrives),
    };
    Ok(Pod {
        name: recorded.name.to_string(),
        arrives: seconds(arrives.duration_since(since)),
        runs: seconds(runs).max(1.0),
        requests: Resources { gpus, milli_cpu: recorded.milli_cpu, memory_mib: recorded.memory_mib },
        gpu_milli: 1_000,
        models: recorded.models.clone(),
        service: Service::Other,
        pool: recorded.pool.clone(),
    })
}

fn seconds(length: SignedDuration) -> f64 {
    length.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use stoker_advice::rollup::{Owner, PodLabels};
    use stoker_core::market::sharing::Slices;
    use stoker_journal::PodEnd;

    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * 3_600).unwrap()
    }

    fn span(since: i64, until: i64) -> Window {
        Window { since: at(since), until: at(until) }
    }

    fn pod(created: i64, bound: i64, end: Option<i64>) -> RecordedPod {
        RecordedPod {
            uid: "u".into(),
            name: "ml/train".into(),
            owner_kind: None,
            owner: Owner::of("ml", "train", None, None),
            labels: PodLabels::default(),
            pool: Some("training".into()),
            models: vec!["L4".into()],
            gpus: Some(2),
            slices: Slices::default(),
            milli_cpu: 3_000,
            memory_mib: 4_096,
            node: "n".into(),
            created: at(created),
            bound: at(bound),
            end: end.map(|end| PodEnd { at: at(end), is_seen: true }),
        }
    }

    #[test]
    fn a_pod_runs_as_long_as_it_ran_in_the_window() {
        // In hours: created, bound, ended; from the window's start it arrives and runs.
        for (created, bound, end, arrives, runs) in [
            (12, 13, Some(15), 2, 2),
            (2, 3, Some(15), 0, 5),
            (2, 12, Some(15), 0, 3),
            (12, 13, None, 2, 18),
            (2, 3, None, 0, 20),
            // Its end is known though it lies beyond the window.
            (28, 29, Some(99), 18, 70),
        ] {
            let played = playable(&pod(created, bound, end), span(10, 30)).unwrap();
            let hours = (played.arrives / 3_600.0, played.runs / 3_600.0);
            assert_eq!(hours, (f64::from(arrives), f64::from(runs)), "{created} {bound} {end:?}");
        }
        let short = playable(&pod(12, 13, Some(13)), span(10, 30)).unwrap();
        assert_eq!((short.runs, short.requests.gpus, short.pool.as_deref()), (1.0, 2, Some("training")));
    }

    #[test]
    fn what_cannot_be_played_says_why() {
        let why = |change: fn(&mut RecordedPod)| {
            let mut odd = pod(12, 13, None);
            change(&mut odd);
            playable(&odd, span(10, 30)).unwrap_err()
        };
        assert!(why(|pod| pod.gpus = None).contains("resource claim"));
        assert!(why(|pod| pod.pool = None).contains("not Stoker's"));
        let shares = |pod: &mut RecordedPod| {
            (pod.gpus, pod.slices) = (Some(0), [("nvidia.com/gpu.shared", 1)].into_iter().collect());
        };
        assert!(why(shares).contains("shares of GPUs"));
    }

    #[test]
    fn the_window_is_what_was_asked_for_as_far_as_pods_are_known() {
        let known = span(0, 100);
        let asked = |since: Option<i64>, until: Option<i64>, days| {
            let asked = Asked { since: since.map(at), until: until.map(at), days };
            window(known, &asked).map(|(window, notes)| (window, notes.len()))
        };
        assert_eq!(asked(None, None, None), Some((span(76, 100), 0)));
        assert_eq!(asked(None, None, Some(3)), Some((span(28, 100), 0)));
        assert_eq!(asked(None, None, Some(5)), Some((known, 1)), "more days than there are");
        assert_eq!(asked(None, Some(50), Some(1)), Some((span(26, 50), 0)));
        assert_eq!(asked(Some(-5), Some(200), None), Some((known, 2)));
        assert_eq!(asked(Some(50), Some(50), None), None);
        assert_eq!(asked(Some(100), None, None), None);
        assert_eq!(asked(None, Some(0), None), None);
        // The first hours of a journal are all of its last day.
        assert_eq!(window(span(0, 2), &Asked { since: None, until: None, days: None }), Some((span(0, 2), Vec::new())));
    }
}
