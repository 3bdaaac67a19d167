//! What all readers of one moment share: the picture is taken once, and each page is drawn once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::page::Page;
use crate::api::side::Condition;
use crate::publish::picture::Picture;

/// How old what is shown may be, where it takes little to make: a picture of 5,000 nodes takes some milliseconds.
pub(super) const BEAT: Duration = Duration::from_secs(3);

/// How old at most. In between it is [`PAUSE`] times as long as making it took, so that readers cost the same on a slow or busy machine.
const LONGEST_BEAT: Duration = Duration::from_secs(15);

/// A third of a percent of a core.
const PAUSE: u32 = 300;

/// The same of what is read from the journal.
const JOURNAL_BEAT: Duration = Duration::from_secs(10);

/// Pages that are kept at once. Their addresses hold free text, so there may be any number of them; more are drawn for whoever asks.
const MOST_PAGES: usize = 256;

/// What is shown of one moment.
#[derive(Debug)]
pub(super) struct Beat {
    begun: Instant,
    shown_for: Duration,
    pub(super) picture: Picture,
    pub(super) conditions: Vec<Condition>,
    pages: Mutex<HashMap<Page, (Instant, Cell)>>,
}

type Cell = Arc<OnceCell<Drawn>>;

/// The main part of a page.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    /// Whether there is what it is about.
    pub(super) is_found: bool,
    pub(super) html: Arc<str>,
}

impl Beat {
    /// A beat that begins now, after this one, and took so long to make.
    pub(super) fn begin(picture: Picture, conditions: Vec<Condition>, took: Duration, before: Option<&Self>) -> Self {
        let shown_for = took.saturating_mul(PAUSE).clamp(BEAT, LONGEST_BEAT);
        let now = Instant::now();
        let is_kept = |page: &Page, at: Instant| page.is_of_journal() && now.duration_since(at) < JOURNAL_BEAT;
        let kept = before.map(|before| {
            let pages = before.pages.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = pages.iter().filter(|(page, (at, _))| is_kept(page, *at));
            kept.map(|(page, (at, cell))| (page.clone(), (*at, Arc::clone(cell)))).collect()
        });
        Self { begun: now, shown_for, picture, conditions, pages: Mutex::new(kept.unwrap_or_default()) }
    }

    /// Whether it may still be shown.
    pub(super) fn is_fresh(&self) -> bool {
        self.begun.elapsed() < self.shown_for
    }

    /// Where a page is drawn, by whoever asks for it first.
    pub(super) fn cell(&self, page: &Page) -> Cell {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= MOST_PAGES && !pages.contains_key(page) {
            return Cell::default();
        }
        let (_, cell) = pages.entry(page.clone()).or_insert_with(|| (Instant::now(), Cell::default()));
        Arc::clone(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_of_the_journal_outlive_a_beat_and_others_do_not() {
        let first = Beat::begin(Picture::default(), Vec::new(), Duration::ZERO, None);
        let (now, decisions) = (first.cell(&Page::Now), first.cell(&Page::Decisions { node: None }));
        assert!(Arc::ptr_eq(&now, &first.cell(&Page::Now)));
        assert!(first.is_fresh());
        tokio::time::advance(BEAT).await;
        assert!(!first.is_fresh());
        let second = Beat::begin(Picture::default(), Vec::new(), Duration::ZERO, Some(&first));
        assert!(!Arc::ptr_eq(&now, &second.cell(&Page::Now)));
        assert!(Arc::ptr_eq(&decisions, &second.cell(&Page::Decisions { node: None })));
        tokio::time::advance(JOURNAL_BEAT).await;
        let third = Beat::begin(Picture::default(), Vec::new(), Duration::ZERO, Some(&second));
        assert!(!Arc::ptr_eq(&decisions, &third.cell(&Page::Decisions { node: None })));
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_addresses_takes_bounded_memory() {
        let beat = Beat::begin(Picture::default(), Vec::new(), Duration::ZERO, None);
        let page = |n: usize| Page::Decisions { node: Some(n.to_string()) };
        let first = beat.cell(&page(0));
        (0..MOST_PAGES + 10).for_each(|n| drop(beat.cell(&page(n))));
        assert_eq!(beat.pages.lock().unwrap().len(), MOST_PAGES);
        assert!(Arc::ptr_eq(&first, &beat.cell(&page(0))));
        assert!(!Arc::ptr_eq(&beat.cell(&page(MOST_PAGES)), &beat.cell(&page(MOST_PAGES))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_to_make_is_shown_for_longer() {
        let slow = Beat::begin(Picture::default(), Vec::new(), Duration::from_millis(20), None);
        let slowest = Beat::begin(Picture::default(), Vec::new(), Duration::from_secs(1), None);
        tokio::time::advance(Duration::from_millis(5_900)).await;
        assert!(slow.is_fresh() && slowest.is_fresh());
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!slow.is_fresh() && slowest.is_fresh());
        tokio::time::advance(LONGEST_BEAT).await;
        assert!(!slowest.is_fresh());
    }
}
