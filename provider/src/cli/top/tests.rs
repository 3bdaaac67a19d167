#![expect(clippy::needless_pass_by_value, reason = "JSON is written where it is handed over")]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use stoker_service::publish::picture::Picture;

use super::columns::NodeColumn;
use super::screen::{Answer, Effect, Input, Readiness, Screen};
use super::*;

/// When the pictures were taken.
const NOW: &str = "2026-11-01T12:00:04Z";

fn node(record: u64, pool: &str, kind: [&str; 3], rate: Option<i64>, rest: Value) -> Value {
    let [instance_type, zone, capacity] = kind;
    let mut node = json!({
        "record": record, "name": format!("ip-10-0-{}-{}", record / 250, record % 250), "pool": pool,
        "group": format!("{pool}.{}.{zone}", instance_type.replace('.', "-")), "instanceType": instance_type, "zone": zone,
        "phase": "running", "capacityType": capacity, "rate": rate,
    });
    node.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    node
}

fn picture(pools: Vec<Value>, nodes: Vec<Value>, budget: Value) -> Picture {
    let at = "2026-11-01T12:00:01Z";
    let all = json!({ "cluster": "prod-east", "now": NOW, "at": at, "budget": budget, "pools": pools, "nodes": nodes });
    serde_json::from_value(all).unwrap()
}

fn pool(name: &str, [running, coming, wanted, max]: [u32; 4], rate: i64, floor: Value, budget: Value) -> Value {
    json!({
        "pool": name, "running": running, "coming": coming, "wanted": wanted, "max": max, "rate": rate,
        "floor": floor, "budget": budget, "fault": null,
    })
}

/// A small fleet in which everything occurs once.
fn fleet() -> Picture {
    let l4 = ["g6.xlarge", "us-east-1a", "spot"];
    let h100 = ["p5.48xlarge", "us-east-1b", "on-demand"];
    let since = |time: &str| format!("2026-11-01T{time}Z");
    let unread = "GPU 3: XID 79, it has fallen off the bus";
    let nodes = vec![
        node(
            1,
            "training",
            h100,
            Some(55_040_000),
            json!({
                "verdict": "busy", "since": since("09:00:00"), "why": "its GPUs are at work",
                "gpus": [980, 1000, 970, 990, 960, 1000, 940, 0], "heldBy": ["ml/llama-0"],
            }),
        ),
        node(
            2,
            "training",
            h100,
            Some(55_040_000),
            json!({
                "verdict": "unhealthy", "since": since("11:58:00"), "why": unread,
                "gpus": [0, 0, 0, null, 0, 0, 0, 0], "heldBy": [], "cordoned": format!("unhealthy: {unread}"),
            }),
        ),
        node(
            3,
            "inference",
            l4,
            Some(804_800),
            json!({
                "verdict": "busy", "since": since("11:20:00"), "why": "its GPU is at work", "gpus": [430], "heldBy": ["serving/chat-7f6c9"],
            }),
        ),
        node(
            4,
            "inference",
            l4,
            Some(804_800),
            json!({
                "verdict": "held", "since": since("08:10:00"), "why": "a pod has its GPU and does nothing with it",
                "gpus": [0], "heldBy": ["dev/notebook-anna", "dev/notebook-ben"], "outdated": "the image is ami-1, not ami-2",
            }),
        ),
        node(
            5,
            "inference",
            l4,
            Some(804_800),
            json!({
                "verdict": "warm", "since": since("11:45:00"), "why": "nothing holds it", "gpus": [0], "heldBy": [],
                "kept": "the pool's warm floor wants it",
            }),
        ),
        node(
            6,
            "inference",
            l4,
            Some(804_800),
            json!({
                "verdict": "draining", "since": since("11:59:30"), "why": "it is drained", "gpus": [120], "heldBy": ["serving/chat-2b8d1"],
                "drained": "the cloud reclaims it at 12:01:30Z; its pods are asked to go",
            }),
        ),
        node(7, "inference", l4, Some(804_800), json!({ "phase": "booting", "name": "aws:///us-east-1a/i-0f00ba47" })),
        node(8, "training", h100, None, json!({ "phase": "wanted", "name": "stoker://prod-east/r8", "capacityType": null })),
        node(9, "inference", l4, Some(804_800), json!({ "verdict": "unknown", "since": since("11:40:00"), "why": "no probe" })),
    ];
    let floor = json!({ "pool": "inference", "wanted": 2, "why": "nodes", "warm": 1, "coming": 1, "usdPerHour": 1_609_600,
        "unmetSince": since("11:59:00"), "blocked": null });
    let budget = json!({ "of": { "pool": "training" }, "spent": 110_080_000, "limit": 120_000_000, "stage": "spotOnly" });
    let all = json!({ "of": "all", "spent": 114_908_800, "limit": 200_000_000, "stage": "ample" });
    let pools = vec![
        pool("inference", [5, 1, 6, 20], 4_828_800, floor, Value::Null),
        pool("training", [2, 1, 3, 4], 110_080_000, Value::Null, budget),
    ];
    picture(pools, nodes, all)
}

/// As many nodes as a large cluster has.
fn large() -> Picture {
    let verdicts = ["busy", "busy", "busy", "held", "warm"];
    let nodes = (1..=5_000_u64).map(|n| {
        let place = usize::try_from(n).unwrap();
        let kind = ["g6.12xlarge", ["us-east-1a", "us-east-1b"][place % 2], "spot"];
        let verdict = verdicts[place % verdicts.len()];
        let busy: Vec<u64> = (0..4).map(|gpu| n * 37 % 1_000 * u64::from(verdict == "busy") * (gpu + 1) / 4).collect();
        let held_by = if verdict == "warm" { json!([]) } else { json!([format!("team-{}/job-{n}", n % 7)]) };
        let rest = json!({ "verdict": verdict, "since": "2026-11-01T11:00:00Z", "why": "by its GPUs", "gpus": busy, "heldBy": held_by });
        node(n, &format!("pool-{:02}", n % 25), kind, Some(1_600_000), rest)
    });
    let pools = (0..25).map(|n| pool(&format!("pool-{n:02}"), [200, 0, 200, 400], 320_000_000, Value::Null, Value::Null));
    picture(pools.collect(), nodes.collect(), Value::Null)
}

fn ready() -> Readiness {
    Readiness::of(true, "ready\nok        view\n")
}

/// A screen of that size after one answer.
fn screen(size: (u16, u16), picture: Picture, ready: Readiness) -> Screen {
    let mut screen = Screen::new("http://127.0.0.1:8088".to_owned(), false, size);
    screen.step(Input::Answered(Ok(Box::new(Answer { picture, ready }))), Duration::ZERO);
    screen
}

fn press(screen: &mut Screen, codes: impl IntoIterator<Item = KeyCode>) -> Effect {
    let mut last = Effect::None;
    for code in codes {
        last = screen.step(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)), screen.now);
    }
    last
}

fn keys(text: &str) -> impl Iterator<Item = KeyCode> {
    text.chars().map(KeyCode::Char)
}

/// What a terminal shows, without the ends of lines that are empty.
fn shown(screen: &Screen) -> String {
    let mut terminal = Terminal::new(TestBackend::new(screen.size.0, screen.size.1)).unwrap();
    terminal.draw(|frame| draw::draw(screen, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let width = usize::from(screen.size.0).max(1);
    let lines = buffer.content().chunks(width).map(|row| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// The node under the cursor.
fn selected(screen: &Screen) -> &str {
    &screen.nodes()[screen.shown[screen.cursor]].name
}

#[test]
fn pools_and_nodes_stand_on_one_screen() {
    insta::assert_snapshot!("wide", shown(&screen((120, 18), fleet(), ready())));
}

#[test]
fn a_terminal_of_80_by_24_is_enough() {
    let fault =
        "ready, degraded\ndegraded  policy: line 3: spot.maxShare 140% is above 100% (the last good policy is in use)\n";
    let narrow = screen((80, 24), fleet(), Readiness::of(true, fault));
    insta::assert_snapshot!("narrow", shown(&narrow));
    // However small it is, nothing breaks.
    for size in [(0, 0), (1, 1), (20, 3), (40, 8), (500, 200)] {
        let mut small = screen(size, fleet(), ready());
        press(&mut small, [KeyCode::PageDown, KeyCode::Enter, KeyCode::End]);
        assert!(shown(&small).lines().count() <= usize::from(size.1), "{size:?}");
    }
}

#[test]
fn before_the_first_answer_and_without_nodes_it_says_so() {
    let mut empty = Screen::new("http://127.0.0.1:8088".to_owned(), false, (80, 12));
    assert!(shown(&empty).starts_with("asking http://127.0.0.1:8088\n"));
    empty.step(Input::Answered(Err("connection refused".to_owned())), Duration::ZERO);
    assert!(shown(&empty).starts_with("connection refused\n"));
    let pools = vec![pool("inference", [0, 0, 0, 20], 0, Value::Null, Value::Null)];
    insta::assert_snapshot!("empty", shown(&screen((80, 12), picture(pools, Vec::new(), Value::Null), ready())));
}

#[test]
fn a_stoker_that_is_away_leaves_its_last_picture_with_its_age() {
    let mut away = screen((100, 16), fleet(), ready());
    away.step(Input::Answered(Err("connection refused".to_owned())), Duration::from_secs(65));
    insta::assert_snapshot!("away", shown(&away));
    away.step(Input::Answered(Ok(Box::new(Answer { picture: fleet(), ready: ready() }))), Duration::from_secs(67));
    assert!(shown(&away).contains("as of 3 s ago") && !shown(&away).contains("no picture"));
}

#[test]
fn a_replica_that_is_not_ready_says_why() {
    let standby = "not ready\nnot-ready leadership: this replica is the standby\nok        view\n";
    let standby = shown(&screen((100, 16), fleet(), Readiness::of(false, standby)));
    assert!(standby.contains("not ready  as of") && standby.contains("leadership: this replica is the standby"), "{standby}");
}

#[test]
fn a_filter_keeps_what_has_every_word() {
    let mut filtered = screen((100, 20), fleet(), ready());
    press(&mut filtered, keys("/inference Held"));
    insta::assert_snapshot!("filter", shown(&filtered));
    press(&mut filtered, [KeyCode::Enter]);
    assert_eq!(filtered.shown.len(), 1, "the filter stays");
    assert_eq!(press(&mut filtered, [KeyCode::Esc]), Effect::None);
    assert_eq!(filtered.shown.len(), 9, "Esc takes it away");
    press(&mut filtered, keys("/nothing has this"));
    assert!(shown(&filtered).contains("none of 9 nodes has"));
    assert_eq!(press(&mut filtered, [KeyCode::Esc, KeyCode::Esc]), Effect::Quit);
}

#[test]
fn enter_explains_what_the_view_knows_and_asks_the_journal_where_there_is_one() {
    let mut explained = screen((80, 20), fleet(), ready());
    press(&mut explained, keys("/unhealthy"));
    assert_eq!(press(&mut explained, [KeyCode::Enter, KeyCode::Enter]), Effect::None);
    insta::assert_snapshot!("explain", shown(&explained));
    assert_eq!(press(&mut explained, [KeyCode::Esc]), Effect::None);
    explained.has_journal = true;
    assert_eq!(press(&mut explained, [KeyCode::Enter]), Effect::Explain(RecordId(2)));
    assert!(shown(&explained).contains("reading the journal"));
    let text = (1..=30).map(|n| format!("decision d{n}")).collect::<Vec<_>>().join("\n");
    explained.step(Input::Explained(RecordId(2), text), Duration::ZERO);
    press(&mut explained, [KeyCode::End]);
    assert!(shown(&explained).contains("decision d30\n") && !shown(&explained).contains("decision d1\n"));
    // It stays when the node is gone.
    let gone = picture(Vec::new(), Vec::new(), Value::Null);
    explained.step(Input::Answered(Ok(Box::new(Answer { picture: gone, ready: ready() }))), Duration::ZERO);
    press(&mut explained, [KeyCode::Home]);
    assert!(shown(&explained).contains("Stoker knows it no more"), "{}", shown(&explained));
}

#[test]
fn five_thousand_nodes_are_paged() {
    let mut paged = screen((120, 30), large(), ready());
    insta::assert_snapshot!("large", shown(&paged));
    press(&mut paged, [KeyCode::PageDown, KeyCode::PageDown]);
    assert_eq!(paged.cursor, 2 * paged.page());
    press(&mut paged, [KeyCode::End]);
    assert!(shown(&paged).contains(selected(&paged)));
    press(&mut paged, [KeyCode::Tab, KeyCode::Tab, KeyCode::End]);
    assert!(shown(&paged).contains("pool-24") && !shown(&paged).contains("VERDICT"), "pools alone are scrolled");
}

#[test]
fn what_is_unknown_is_last_in_every_order() {
    let mut sorted = screen((130, 30), fleet(), ready());
    let last = |screen: &Screen| screen.nodes()[*screen.shown.last().unwrap()].record.0;
    while sorted.sort != NodeColumn::Price {
        press(&mut sorted, keys("s"));
    }
    assert_eq!(
        (selected(&sorted).to_owned(), last(&sorted)),
        ("aws:///us-east-1a/i-0f00ba47".to_owned(), 8),
        "the selection stays on its node"
    );
    assert_eq!(sorted.nodes()[sorted.shown[0]].record.0, 1, "the dearest first");
    press(&mut sorted, keys("r"));
    assert_eq!((sorted.nodes()[sorted.shown[0]].record.0, last(&sorted)), (7, 8));
    press(&mut sorted, keys("S"));
    assert_eq!(sorted.sort, NodeColumn::Verdict);
    press(&mut sorted, keys("S"));
    assert!([7, 8, 9].contains(&last(&sorted)), "GPU use of these is not known");
}

#[test]
fn a_pipe_gets_the_whole_picture_as_text() {
    insta::assert_snapshot!("plain", draw::plain(&screen((u16::MAX, u16::MAX), fleet(), ready())));
}
