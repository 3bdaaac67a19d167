use std::collections::BTreeSet;

use jiff::civil::DateTime;
use proptest::prelude::*;

use super::*;

fn slot(cron: &str, zone: &str, length: SignedDuration) -> Slot {
    Slot { cron: Cron::parse(cron).unwrap(), time_zone: Zone::parse(zone).unwrap(), length }
}

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_working_day_begins_and_ends_by_the_clock_of_its_place() {
    let day = slot("0 8 * * 1-5", "America/New_York", hours(10));
    // Friday 20 November 2026, 8:00 to 18:00 in New York (UTC-5); then Monday.
    assert_eq!(day.at(at("2026-11-20T12:59:59Z")), (false, Some(at("2026-11-20T13:00:00Z"))));
    assert_eq!(day.at(at("2026-11-20T13:00:00Z")), (true, Some(at("2026-11-20T23:00:00Z"))));
    assert_eq!(day.at(at("2026-11-20T22:59:59.5Z")), (true, Some(at("2026-11-20T23:00:00Z"))));
    assert_eq!(day.at(at("2026-11-20T23:00:00Z")), (false, Some(at("2026-11-23T13:00:00Z"))));
}

/// The clocks of Berlin go from 2:00 to 3:00 on 29 March 2026 (1:00 UTC) and from 3:00 back to 2:00 on 25 October 2026 (1:00 UTC).
#[test]
fn nights_on_which_the_clocks_change_keep_to_the_clock_on_the_wall() {
    let night = slot("0 22 * * *", "Europe/Berlin", hours(8));
    // 22:00 to 6:00: seven hours in spring, nine in autumn.
    assert_eq!(night.at(at("2026-03-28T23:00:00Z")), (true, Some(at("2026-03-29T04:00:00Z"))));
    assert_eq!(night.at(at("2026-10-24T23:00:00Z")), (true, Some(at("2026-10-25T05:00:00Z"))));
    // 2:30 is skipped in spring: the slot begins with the change. In autumn 2:30 comes twice: it begins with the first.
    let early = slot("30 2 * * *", "Europe/Berlin", hours(1));
    assert_eq!(early.at(at("2026-03-29T00:59:00Z")), (false, Some(at("2026-03-29T01:00:00Z"))));
    assert_eq!(early.at(at("2026-03-29T01:00:00Z")), (true, Some(at("2026-03-29T01:30:00Z"))));
    assert_eq!(early.at(at("2026-10-25T00:30:00Z")), (true, Some(at("2026-10-25T02:30:00Z"))));
    // Whole within the skipped hour: not that night.
    let short = slot("10 2 * * *", "Europe/Berlin", SignedDuration::from_mins(30));
    assert_eq!(short.at(at("2026-03-29T00:00:00Z")), (false, Some(at("2026-03-30T00:10:00Z"))));
    // Within the hour that comes twice: once.
    assert_eq!(short.at(at("2026-10-25T00:20:00Z")), (true, Some(at("2026-10-25T00:40:00Z"))));
    assert_eq!(short.at(at("2026-10-25T01:20:00Z")), (false, Some(at("2026-10-26T01:10:00Z"))));
}

#[test]
fn slots_longer_than_a_day_and_slots_that_overlap_are_one_stretch() {
    // From Friday 18:00 to Monday 8:00.
    let weekend = slot("0 18 * * 5", "UTC", hours(62));
    assert_eq!(weekend.at(at("2026-11-22T03:00:00Z")), (true, Some(at("2026-11-23T08:00:00Z"))));
    // Each working day for 30 h: from Monday 8:00 to Saturday 14:00.
    let week = slot("0 8 * * 1-5", "UTC", hours(30));
    assert_eq!(week.at(at("2026-11-16T08:00:00Z")), (true, Some(at("2026-11-21T14:00:00Z"))));
    assert_eq!(week.at(at("2026-11-21T14:00:00Z")), (false, Some(at("2026-11-23T08:00:00Z"))));
    assert!(!week.is_endless(at("2026-01-01T00:00:00Z")));
    // Nights and the weekend, by two clocks: from Friday 18:00 to Monday 8:00 in Berlin (UTC+1).
    let nights = slot("0 20 * * *", "Europe/Berlin", hours(12));
    let off = OffHours { slots: vec![nights, weekend], max_nodes: Some(0), evict_held_after: None };
    assert_eq!(off.at(at("2026-11-20T17:59:00Z")), (false, Some(at("2026-11-20T18:00:00Z"))));
    assert_eq!(off.at(at("2026-11-20T18:00:00Z")), (true, Some(at("2026-11-23T08:00:00Z"))));
    assert_eq!(off.at(at("2026-11-23T08:00:00Z")), (false, Some(at("2026-11-23T19:00:00Z"))));
}

#[test]
fn what_never_ends_or_hardly_ever_comes_is_not_searched_for_ever() {
    let always = slot("0 0 * * *", "UTC", hours(24));
    assert!(always.is_endless(at("2026-01-01T00:00:00Z")));
    assert!(slot("* * * * *", "UTC", hours(1)).is_endless(at("2026-01-01T00:00:00Z")));
    let (on, look_again) = always.at(at("2026-11-22T03:00:00Z"));
    assert!(on && look_again.is_some_and(|at| at > "2026-11-30T00:00:00Z".parse().unwrap()));
    let leap_days = slot("0 0 29 2 *", "UTC", hours(24));
    assert_eq!(leap_days.at(at("2026-11-22T03:00:00Z")), (false, Some(at("2028-02-29T00:00:00Z"))));
    for edge in [Timestamp::MIN, Timestamp::MAX] {
        let (on, next) = leap_days.at(edge);
        assert!(!on && next.is_none_or(|next| next > edge));
        let _ = always.at(edge);
    }
}

#[test]
fn nonsense_is_refused_with_its_place_and_cure() {
    let told = |text: &str| Cron::parse(text).unwrap_err().to_string();
    assert_eq!(
        told("0 25 * * *"),
        r#""0 25 * * *" is not a cron expression, "25" is not a valid hour: write it like 0 8 * * 1-5 for 8:00 on working days"#
    );
    assert!(told("0 8 * * mo-fr").contains(r#""mo-fr" is not a valid day of the week"#));
    assert!(told("0 8 * * 1-5 Europe/Berlin").contains("has 6 fields, not 5"));
    assert!(told("").contains("has 0 fields"));
    assert!(told("0 0 31 2 *").ends_with("never occurs: no month has that day: write a day that it has, or * for the month"));
    assert!(told("@daily").starts_with(r#""@daily" has 1 field, not 5: write minute"#));
    assert!(Cron::parse(" 0  8 * *\tMON-FRI ").is_ok());
    let told = |text: &str| Zone::parse(text).unwrap_err().to_string();
    assert_eq!(told("Europe/Berln"), r#""Europe/Berln" is not an IANA time zone: write Europe/Berlin"#);
    assert!(told("CEST+3").contains("one such as Europe/Berlin"));
    assert_eq!(Zone::parse("europe/berlin").unwrap().as_str(), "Europe/Berlin");
    assert_eq!(Zone::parse("UTC").unwrap(), Zone::utc());
}

#[test]
fn a_slot_is_written_and_read_as_it_was() {
    let slot = slot("0 8 * * 1-5", "Europe/Berlin", hours(10));
    let text = serde_json::to_string(&slot).unwrap();
    assert_eq!(text, r#"{"cron":"0 8 * * 1-5","timeZone":"Europe/Berlin","length":"PT10H"}"#);
    assert_eq!(serde_json::from_str::<Slot>(&text).unwrap(), slot);
}

/// The days around a change of the clocks, minute by minute: what a person with a wall clock and a list would find.
struct Wall {
    /// What the clock shows at each minute.
    minutes: Vec<(Timestamp, DateTime)>,
}

impl Wall {
    fn around(zone: &Zone, change: Timestamp) -> Self {
        let minute = |at: i64| change + SignedDuration::from_mins(at - 3 * 1_440);
        Self { minutes: (0..7 * 1_440).map(minute).map(|at| (at, zone.clock(at))).collect() }
    }

    /// The first minute at which the clock shows `time` or a later one.
    fn first(&self, time: DateTime) -> Option<Timestamp> {
        self.minutes.iter().find(|(_, shown)| *shown >= time).map(|(at, _)| *at)
    }

    /// The stretches of a slot that begins at `hour:minute` on `days` (1 is Monday), as minutes that are on.
    fn on(&self, hour: i8, minute: i8, days: &BTreeSet<i8>, length: SignedDuration) -> BTreeSet<Timestamp> {
        let first = self.minutes[0].1.date();
        let dates = first.series(jiff::Span::new().days(1)).take(8);
        let starts =
            dates.filter(|date| days.contains(&date.weekday().to_monday_one_offset())).map(|date| date.at(hour, minute, 0, 0));
        starts
            .filter_map(|start| Some((self.first(start)?, self.first(start.saturating_add(length)))))
            .flat_map(|(from, to)| {
                self.minutes.iter().map(|(at, _)| *at).filter(move |at| *at >= from && to.is_none_or(|to| *at < to))
            })
            .collect()
    }
}

/// Changes of the clocks: by an hour and by half an hour, forwards and back, on both halves of the earth, at midnight; and none.
const CHANGES: [(&str, &str); 9] = [
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("America/Santiago", "2026-04-05T03:00:00Z"),
    ("America/Santiago", "2026-09-06T04:00:00Z"),
    ("Asia/Kolkata", "2026-06-01T00:00:00Z"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_on_when_a_wall_clock_says_so_and_their_next_change_is_exact(
        change in 0..CHANGES.len(),
        hour in 0_i8..24,
        minute in 0_i8..60,
        days in prop::collection::btree_set(1_i8..=7, 1..=7),
        length in 1_i64..(26 * 60),
        minutes in prop::collection::vec(0_usize..(2 * 1_440), 8),
    ) {
        let (zone, change) = CHANGES[change];
        let zone = Zone::parse(zone).unwrap();
        let wall = Wall::around(&zone, at(change));
        let names = days.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let length = SignedDuration::from_mins(length);
        let slot = Slot { cron: Cron::parse(&format!("{minute} {hour} * * {names}")).unwrap(), time_zone: zone, length };
        let on = wall.on(hour, minute, &days, length);
        for from in minutes {
            // Two days at the middle: what began before, and what ends after, is in the list.
            let from = 2 * 1_440 + from;
            let now = wall.minutes[from].0;
            let (is_on, next) = slot.at(now);
            prop_assert_eq!(is_on, on.contains(&now), "at {}", now);
            let seen = wall.minutes[from..from + 1_440].iter().map(|(at, _)| *at).find(|at| on.contains(at) != is_on);
            if let Some(seen) = seen {
                prop_assert_eq!(next, Some(seen), "after {}", now);
            } else {
                prop_assert!(next.is_none_or(|next| next >= now + SignedDuration::from_hours(24)));
            }
        }
    }

    #[test]
    fn no_text_is_too_odd(text in r"[0-9*,/#LWH@a-zA-Zäß.\-+ \t]{0,30}", zone in r"\PC{0,20}") {
        let _ = Zone::parse(&zone);
        if let Ok(cron) = Cron::parse(&text) {
            let slot = Slot { cron, time_zone: Zone::utc(), length: SignedDuration::from_mins(1) };
            let (_, next) = slot.at(at("2026-11-22T03:00:00Z"));
            prop_assert!(next.is_none_or(|next| next > at("2026-11-22T03:00:00Z")));
        }
    }
}
