use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

/// A type with every form that our files have.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct World {
    name: String,
    #[serde(default)]
    speed: f64,
    #[serde(default)]
    seed: Option<i32>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<Event>,
    #[serde(default)]
    anything: serde_json::Value,
    #[serde(default)]
    port: Option<std::num::NonZeroU16>,
    #[serde(default)]
    address: Option<std::net::IpAddr>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Event {
    StockOut {
        zone: String,
        minutes: u8,
    },
    Reclaim {
        zone: String,
        #[serde(default)]
        nodes: Vec<u32>,
    },
}

fn said(text: &str) -> String {
    load::<World>("world.yaml", text).err().map(|faults| faults.to_string()).unwrap_or_default()
}

#[test]
fn a_file_becomes_its_type() {
    let text = "\
name: 'quoted: # text'
speed: 1.5
labels: {\"a\": no, b: \"1\", 'c d': |-
  two
  lines
}
anything: [1, {x: null}]
events:
- {kind: stockOut, zone: use1-az1, minutes: 5}
-
  kind: reclaim
  zone: use1-az2
  nodes: [1, 2]
";
    // A block scalar within braces is no YAML; the same text without it is.
    assert_eq!(
        said(text),
        "world.yaml:3:34: the file is not YAML: unexpected character: `|'; look at the indentation, brackets and quotes here and above"
    );
    let world = load::<World>("world.yaml", &text.replace("|-\n  two\n  lines\n", "two\n  lines")).expect("a world");
    assert_eq!(world.value.name, "quoted: # text");
    assert_eq!(
        world.value.labels,
        BTreeMap::from([("a", "no"), ("b", "1"), ("c d", "two lines")].map(|(k, v)| (k.into(), v.into())))
    );
    assert_eq!(world.value.events[1], Event::Reclaim { zone: "use1-az2".into(), nodes: vec![1, 2] });
    assert_eq!(world.value.anything, serde_json::json!([1, {"x": null}]));
}

#[test]
fn places_lead_back_to_the_text() {
    let text = "name: a\nevents:\n- kind: reclaim\n  zone: z\n  nodes:\n  - 1\n  - 2\nlabels: {a: b}\n";
    let world = load::<World>("world.yaml", text).expect("a world");
    let place = |path: &Path| {
        let Position { line, column } = world.position(path);
        (line, column)
    };
    let (root, event) = (Path::root(), Path::root().key("events").index(0));
    assert_eq!(place(&root), (1, 1));
    assert_eq!(place(&root.key("name")), (1, 7));
    assert_eq!(place(&root.key("events")), (2, 1));
    assert_eq!(place(&event), (3, 3));
    assert_eq!(place(&event.key("nodes")), (5, 3));
    assert_eq!(place(&event.key("nodes").index(1)), (7, 5));
    assert_eq!(place(&root.key("labels").key("a")), (8, 13));
    // What the file does not write is shown at what it is part of.
    assert_eq!(place(&event.key("minutes").key("deeper")), (3, 3));
    assert_eq!(place(&event.key("nodes").index(9)), (5, 3));
    assert_eq!(place(&root.key("speed")), (1, 1));
}

#[test]
#[rustfmt::skip] // A case a line.
fn each_form_has_its_fault() {
    for (text, expected) in [
        ("name: a\nevents: [{kind: stockOut, zone: z}]", "2:10: events[0].minutes is missing: add it"),
        ("name: a\nevents: [{kind: stockout, zone: z}]", r#"2:17: events[0].kind "stockout" is not one of stockOut, reclaim: did you mean stockOut?"#),
        ("name: a\nevents: [{zone: z}]", "2:10: events[0].kind is missing: add it"),
        ("name: a\nevents: [{kind: reclaim, zone: z, nodes: [1, -1]}]", "2:46: events[0].nodes[1] -1 is below 0: raise it"),
        ("name: a\nevents: [{kind: stockOut, zone: z, minutes: 256}]", "2:45: events[0].minutes 256 is above 255: lower it"),
        ("name: a\nevents: [5]", "2:10: events[0] must be a mapping, is 5: write its fields kind, zone"),
        ("name: a\nlabels: {a: 1}", "2:13: labels.a must be text, is 1: put it in quotes"),
        ("name: a\nlabels: {a: b, a: c}", "2:16: labels.a is given twice, first on line 2: keep one"),
        ("name: a\nlabels: {[a]: b}", "2:10: labels has a list as a key: write text"),
        ("name: a\nlabels: {: b}", "2:10: labels has a value without a key: write one before the ':'"),
        ("name: a\nlabels: {true: b}", "2:10: labels has the key true, which is not text: put it in quotes"),
        ("name: a\nseed: 3000000000", "2:7: seed 3000000000 is above 2147483647: lower it"),
        ("name: a\nport: 0", "2:7: port 0 is below 1: raise it"),
        ("name: a\nspeed: fast", r#"2:8: speed must be a number, is the text "fast""#),
        ("name: a\nspeed: 007", "2:8: speed 007 begins with zeros, which some parsers read as octal: write it without them, \
                                 or put it in quotes where it is a name"),
        ("name: a\naddress: 10.0.0.256", "2:10: address cannot be read: invalid IP address syntax"),
        ("name: a\nanything: !secret x", r#"2:19: anything has the tag "!secret": tags are not read here, remove it"#),
        ("name: a\nanything: &a [*a]", "2:15: anything[0] is an alias inside what it names: remove it"),
        ("name: [a, b]", "1:1: name must be text, is a list"),
        ("[", "1:1: the file is not YAML: unclosed bracket '['; look at the indentation, brackets and quotes here and above"),
        ("a\u{0}b", "1:2: the file is not YAML: unexpected character: `\\u{0}'; look at the indentation, brackets and quotes here and above"),
    ] {
        assert_eq!(said(text), format!("world.yaml:{expected}"), "{text}");
    }
}

#[test]
fn what_could_blow_up_is_refused() {
    let bomb: String = (1..30).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, at| {
        let aliases = vec![format!("*a{}", at - 1); 8].join(", ");
        text + &format!("a{at}: &a{at} [{aliases}]\n")
    });
    assert_eq!(
        said(&bomb),
        "world.yaml:6:25: a5[3] brings the file above 250000 values, aliases counted as often as they are used"
    );
    let chain: String =
        (1..1000).fold("a0: &a0 [x]\n".to_owned(), |text, at| text + &format!("a{at}: &a{at} [*a{}]\n", at - 1));
    assert_eq!(said(&chain), "world.yaml:64:12: a63[0] is an alias that nests more than 64 levels deep: flatten it");
    for (text, place) in [("[".repeat(1 << 20), "1:65"), ("- ".repeat(1 << 20), "1:129"), ("{a: ".repeat(1 << 20), "1:257")] {
        assert_eq!(said(&text), format!("world.yaml:{place}: the file is nested more than 64 levels deep here: flatten it"));
    }
    assert_eq!(
        said(&" ".repeat(MAX_BYTES + 1)),
        "world.yaml:1:1: the file has 4194305 bytes, more than 4194304: split or shorten it"
    );
}

#[test]
fn a_flood_of_faults_is_counted_not_printed() {
    let text = (0..150).fold("name: a\n".to_owned(), |text, at| text + &format!("x{at}: 1\n"));
    let faults = load::<World>("world.yaml", &text).expect_err("faults");
    assert_eq!(faults.iter().count(), 150);
    let shown = faults.to_string();
    assert_eq!(shown.lines().count(), 101);
    assert!(shown.ends_with("\nworld.yaml: and 50 more errors"), "{shown}");
}

#[test]
fn rules_judge_what_could_be_read_and_nothing_else() {
    let rules = |world: &World| -> Result<(), Vec<Fault>> {
        let fault = |path: Path, message: &str| Fault { path, message: message.into() };
        let mut faults = vec![fault(Path::root().key("labels").key("a"), "is not wanted")];
        if world.name.is_empty() {
            faults.push(fault(Path::root().key("name"), "is empty"));
        }
        if world.events.is_empty() {
            faults.push(fault(Path::root(), "has no events"));
        }
        Err(faults)
    };
    // The list of events could not be read: that there are none is not for the rules to say.
    let faults = load_checked("w", "name: ''\nevents: [{kind: reclaim}, 5]\nlabels: {a: b}\n", rules).expect_err("faults");
    let expected = "w:1:7: name is empty\nw:2:10: events[0].zone is missing: add it\nw:2:27: events[1] must be a mapping, is 5: write its fields kind, zone\nw:3:13: labels.a is not wanted";
    assert_eq!(faults.to_string(), expected);
    let faults = load_checked("w", "name: ''\nlabels: {a: b}\n", rules).expect_err("faults");
    assert_eq!(faults.to_string(), "w:1:1: the file has no events\nw:1:7: name is empty\nw:2:13: labels.a is not wanted");
}

#[test]
fn rules_judge_the_neighbours_of_what_could_not_be_read() {
    let rules = |world: &World| -> Result<(), Vec<Fault>> {
        let path = |at| Path::root().key("events").index(at).key("zone");
        let all = world.events.iter().enumerate().map(|(at, _)| Fault { path: path(at), message: "is nowhere".into() });
        Err(all.collect())
    };
    let faults = load_checked("w", "name: a\nevents: [5, {kind: reclaim, zone: z}]\n", rules).expect_err("faults");
    let expected = "w:2:10: events[0] must be a mapping, is 5: write its fields kind, zone\nw:2:35: events[1].zone is nowhere";
    assert_eq!(faults.to_string(), expected);
}
