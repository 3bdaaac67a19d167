//! The last step: starts what reads the published view and changes objects of the cluster.

use std::sync::Arc;

use super::state::Setup;
use super::{Parts, feeds};
use crate::controllers::rollup::Followed;
use crate::controllers::{buffers, guests, kept_days, pod_starts, recorded_pods, rollup, tolerations};
use crate::engine::EngineHandle;
use stoker_journal::{DaysWriter, PodsWriter, Reader, ReadingsWriter};

/// What they read and write of the journal.
pub(super) struct OfJournal {
    pub(super) readings: ReadingsWriter,
    pub(super) pods: PodsWriter,
    pub(super) days: DaysWriter,
    pub(super) reader: Reader,
}

/// Starts the controllers.
pub(super) fn start(setup: &Setup, feeds: &feeds::Started, journal: OfJournal, handle: &EngineHandle, parts: &mut Parts) {
    let cluster = feeds.cluster.as_ref();
    let clock = &setup.options.clock;
    let engine = handle.clone();
    let view = move || Arc::clone(&engine.view());
    // Whoever moves a virtual clock writes readings down by hand, if at all.
    if !clock.is_moved_by_hand() {
        let followed = Followed {
            clock: clock.clone(),
            view: Box::new(view.clone()),
            cluster: cluster.map(|cluster| cluster.feed.facts()),
            pods: cluster.map(|cluster| cluster.feed.gpu_pods()),
        };
        let keeping = rollup::run(setup.rollup.clone(), journal.readings, followed, parts.inner.stop.clone());
        parts.inner.set.spawn(async move {
            keeping.await;
            "the keeper of readings"
        });
    }
    if !clock.is_moved_by_hand() {
        let followed =
            kept_days::Followed { clock: clock.clone(), view: Box::new(view.clone()), book: Arc::clone(&setup.options.book) };
        let keeping = kept_days::run(followed, journal.reader.clone(), journal.days);
        parts.inner.run("the keeper of days of spend", Box::pin(keeping));
    }
    let Some(feeds::Cluster { client, feed, act }) = cluster else { return };
    if !clock.is_moved_by_hand() {
        let followed = recorded_pods::Followed {
            clock: clock.clone(),
            view: Box::new(view.clone()),
            feed: feed.clone(),
            book: Arc::clone(&setup.options.book),
        };
        let recording = recorded_pods::run(followed, journal.reader, journal.pods, parts.inner.stop.clone());
        parts.inner.set.spawn(async move {
            recording.await;
            "the recorder of GPU pods"
        });
    }
    let starts = pod_starts::run(feed.facts(), feed.gpu_pods(), view.clone(), parts.metrics.clone());
    parts.inner.run("the count of pods that start", starts);
    let guests = guests::run(feed.guests(), view, Arc::clone(act), parts.metrics.clone());
    parts.inner.run("the report of pods without GPU", guests);
    let buffers = buffers::run(client.clone(), handle.clone(), setup.policy.cluster.clone(), feeds.buffers_served.clone());
    parts.inner.run("the keeper of capacity buffers", Box::pin(buffers));
    let tolerations = tolerations::run(client.clone(), handle.clone(), clock.clone(), Arc::clone(act));
    parts.inner.run("the care for waiting pods", Box::pin(tolerations));
}
