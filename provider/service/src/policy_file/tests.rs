use jiff::SignedDuration;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::kinds::Evidence;
use stoker_core::base::units::{MiB, Percent, UsdPerHour};
use stoker_core::market::offer::{CapacityType, GpuNames, GpuSpec, Market, Place};
use stoker_core::market::price::{Entry, Quote, QuoteKind};

use super::*;

const GOOD: &str = "\
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: demo
pools:
- name: inference
  workload: inference
  gpu: {models: [L4], count: 1}
  where: {clouds: [aws], regions: [us-east-1]}
  limits:
    maxNodes: 4
";

/// What is said of `text`; nothing where it is a policy.
fn said(text: &str, book: Option<&PriceBook>) -> String {
    parse("policy.yaml", text, book).err().map(|faults| faults.to_string()).unwrap_or_default()
}

#[test]
fn a_short_policy_and_the_example_are_policies() {
    assert_eq!(said(GOOD, None), "");
    let example = parse("example", example(), None).expect("the example is a policy");
    let pools: Vec<_> =
        example.pools.iter().map(|pool| (pool.name.as_str(), pool.prefer.len(), pool.limits.max_nodes)).collect();
    assert_eq!(pools, [("inference", 1, 40), ("training", 2, 8), ("dev", 2, 10)]);
    assert_eq!(example.quotas.len(), 4);
}

/// What the example explains and leaves off is a policy too when it is switched on, with the defaults that it names, and says nothing that
/// may not be meant.
#[test]
fn what_the_example_leaves_off_can_be_switched_on() {
    let on: String = example()
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| rest.starts_with("  ")).unwrap_or(line).to_owned() + "\n")
        .collect();
    let book = stoker_pricing::embedded().expect("the embedded tables");
    let (read, doubts) = parse_with_doubts("example", &on, Some(&book), |_| Vec::new()).expect("a policy");
    let policy = read.value;
    assert_eq!(doubts.to_string(), "");
    let off = parse("example", example(), None).expect("the example is a policy");
    let [inference, training, dev] = policy.pools.as_slice() else { panic!("three pools") };
    let floor = inference.warm_floor.as_ref().expect("a floor");
    assert_eq!((floor.nodes, floor.percent_of_busy, floor.schedule.len()), (1, Some(Percent(10)), 1));
    assert_eq!(inference.stabilization, off.pools[0].stabilization);
    assert_eq!((training.unhealthy, training.evidence), (off.pools[1].unhealthy, Evidence::Probe));
    assert_eq!(training.spot.as_ref().and_then(|spot| spot.save), Some(SignedDuration::from_secs(90)));
    assert_eq!((dev.held_after, dev.evidence), (off.pools[2].held_after, Evidence::Probe));
    let off_hours = dev.off_hours.as_ref().expect("off-hours");
    assert_eq!((off_hours.max_nodes, off_hours.evict_held_after), (Some(0), Some(SignedDuration::from_mins(15))));
}

#[test]
fn the_config_map_of_the_manifests_holds_the_example() {
    let manifest = include_str!("../../../../manifests/stoker/policy.yaml");
    let (_, block) = manifest.split_once("policy.yaml: |\n").expect("a block of text");
    let text: String = block.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n").collect();
    assert_eq!(text, example());
}

#[test]
fn the_example_names_only_what_the_price_tables_know() {
    let book = stoker_pricing::embedded().expect("the embedded tables");
    assert_eq!(said(example(), Some(&book)), "");
    let misspelt = example().replacen("A10G", "A10X", 1).replacen("[us-east-1]", "[us-est-1]", 1);
    assert_eq!(
        said(&misspelt, Some(&book)),
        "policy.yaml:15:18: pools[0].gpu.models[1] \"A10X\" is not a known GPU model: nearest is A10\npolicy.yaml:20:15: \
         pools[0].where.regions[0] \"us-est-1\" is not a known region of aws: nearest is us-east-1"
    );
}

#[test]
#[rustfmt::skip] // A case a line.
fn one_slip_gets_one_line() {
    for (good, bad, expected) in [
        ("maxNodes: 4", "maxNodes: four", r#"10:15: pools[0].limits.maxNodes must be a whole number, is the text "four""#),
        ("maxNodes: 4", "maxNodes: \"4\"", r#"10:15: pools[0].limits.maxNodes must be a whole number, is the text "4": remove the quotes"#),
        ("maxNodes: 4", "maxNodes: 4.0", "10:15: pools[0].limits.maxNodes must be a whole number, is 4.0"),
        ("maxNodes: 4", "maxNodes: -1", "10:15: pools[0].limits.maxNodes -1 is below 0: raise it"),
        ("maxNodes: 4", "maxNodes: 5000000000", "10:15: pools[0].limits.maxNodes 5000000000 is above 4294967295: lower it"),
        ("maxNodes: 4", "maxNodes:", "10:5: pools[0].limits.maxNodes has no value: give it one, or remove it"),
        ("maxNodes: 4", "maxNodes: ~", "10:15: pools[0].limits.maxNodes must be a whole number, is null"),
        ("maxNodes: 4", "maxNodes: 4\n    maxNodes: 5", "11:5: pools[0].limits.maxNodes is given twice, first on line 10: keep one"),
        ("maxNodes: 4", "maxNode: 4", "10:5: pools[0].limits.maxNode is not a field here: did you mean maxNodes?"),
        ("maxNodes: 4", "maxNodes: 4\n    maxUsdPerHour: .inf", "11:20: pools[0].limits.maxUsdPerHour .inf is not a finite number: write one, or put it in quotes"),
        ("maxNodes: 4", "maxNodes: 4\n    maxUsdPerHour: 0", "11:20: pools[0].limits.maxUsdPerHour is 0: name a rate, or close the pool with maxNodes: 0"),
        ("maxNodes: 4", "maxNodes: 4\n    maxUsdPerHour:", "11:5: pools[0].limits.maxUsdPerHour has no value: give it one, or remove it"),
        ("maxNodes: 4", "maxNodes: 4\n    minNodes: 5", "9:3: pools[0].limits minNodes 5 is above maxNodes 4: lower minNodes or raise maxNodes"),
        ("  limits:\n    maxNodes: 4\n", "", "5:3: pools[0].limits is missing: add it"),
        ("limits:\n", "limts:\n", "9:3: pools[0].limts is not a field here: did you mean limits?"),
        ("count: 1", "colour: red", "7:23: pools[0].gpu.colour is not a field here: known are count, maxShare, minComputeCapability, minMemoryGiB, minMemoryPerNodeGiB, models, needs, throughput, throughputFrom"),
        ("workload: inference", "workload: infrence", r#"6:13: pools[0].workload "infrence" is not one of training, inference, batch, dev: did you mean inference?"#),
        ("workload: inference", "workload: cooking", r#"6:13: pools[0].workload "cooking" is not one of training, inference, batch, dev"#),
        ("workload: inference", "workload: 7", "6:13: pools[0].workload must be one of training, inference, batch, dev, is 7"),
        ("workload: inference", "workload: inference\n  evidence: prode", r#"7:13: pools[0].evidence "prode" is not one of probe, pods, none: did you mean probe?"#),
        ("workload: inference", "workload: inference\n  heldAfter: 1h", "7:14: pools[0].heldAfter cannot be met by the evidence: pods show that a pod has GPUs, and not whether it uses them: write evidence: probe, or remove it"),
        ("workload: inference", "workload: inference\n  evidence: probe\n  heldAfter: 5m", "8:14: pools[0].heldAfter 5m is below 15m: lengthen it, a pod that loads its model would count as forgotten"),
        ("workload: inference", "workload: inference\n  evidence: probe\n  heldAfter: 2w", "8:14: pools[0].heldAfter \"2w\" is not a length of time: write it like 10m, 1h30m or 90s"),
        ("models: [L4]", "models: L4", r#"7:17: pools[0].gpu.models must be a list, is the text "L4": write [L4]"#),
        ("models: [L4]", "models: [4]", "7:18: pools[0].gpu.models[0] must be text, is 4: put it in quotes"),
        ("count: 1", "count: one", r#"7:30: pools[0].gpu.count must be a whole number or a list, is the text "one""#),
        ("count: 1", "count: [1, two]", r#"7:34: pools[0].gpu.count[1] must be a whole number, is the text "two""#),
        ("clusterName: demo", "clusterName: true", "3:14: clusterName must be text, is true: put it in quotes"),
        ("clusterName: demo", "clusterName: !!str demo", r#"3:20: clusterName has the tag "!!str": tags are not read here, remove it"#),
        ("clusterName: demo", "clusterName: *demo", r#"3:14: clusterName names the anchor "demo", which no line above has: put text that begins with * or @ in quotes, as in cron: "*/5 * * * *""#),
        ("clusterName: demo", "clusterName: demo\n1: 2", "4:1: the file has the key 1, which is not text: put it in quotes"),
        ("clusterName: demo", "clusterName: demo\n<<: {kind: Policy}", "4:1: the file has the merge key <<, which is not read here: write its fields out"),
        ("clusterName: demo", "clusterName: demo\ndefaults:", "4:1: defaults has no value: give it one, or remove it"),
        ("clusterName: demo", "clusterName: demo\ndefaults: null", "4:11: defaults must be a mapping, is null: write fields of it, such as bootDeadline, dataRegion, timeZone, unknownQuota"),
        ("clusterName: demo", "clusterName: a: b", "3:15: the file is not YAML: mapping values are not allowed in this context; look at the indentation, brackets and quotes here and above"),
        ("    maxNodes: 4\n", "\tmaxNodes: 4\n", "10:2: the file is not YAML: tabs disallowed within this context (block indentation); look at the indentation, brackets and quotes here and above"),
        ("    maxNodes: 4\n", "    maxNodes: 4\n---\nkind: Policy\n", "11:1: the file has a second document here: keep one"),
        (GOOD, "", "1:1: the file is empty: write its fields apiVersion, kind, clusterName, pools"),
        (GOOD, "# nothing\n", "1:1: the file is empty: write its fields apiVersion, kind, clusterName, pools"),
        (GOOD, "- a\n", "1:1: the file must be a mapping, is a list: write its fields apiVersion, kind, clusterName, pools"),
        (GOOD, "{", "1:1: the file is not YAML: unclosed bracket '{'; look at the indentation, brackets and quotes here and above"),
    ] {
        assert_eq!(said(&GOOD.replacen(good, bad, 1), None), format!("policy.yaml:{expected}"), "{bad}");
    }
}

/// Slips about where data lies are told with their lines, all at once.
#[test]
fn slips_about_data_are_told_at_once() {
    let text = "\
apiVersion: stoker.dev/v1alpha1
kind: Policy
clusterName: demo
defaults: {dataRegion: aws/us-est-1}
pools:
- name: a
  workload: training
  gpu: {models: [L4]}
  where: {clouds: [aws], regions: [us-east-1], datasetGiB: -5, dataRegion: aws/us-east-1}
  limits: {maxNodes: 4}
- name: b
  workload: training
  gpu: {models: [L4]}
  where: {clouds: [aws], regions: [us-east-1], datasetGiB: 99999999, dataRegion: ibm/us-south}
  limits: {maxNodes: 4}
- name: c
  workload: training
  gpu: {models: [L4]}
  where: {clouds: [aws], regions: [us-east-1], dataRegion: aws/eu-west-1, maxDistance: continent}
  limits: {maxNodes: 4}
- name: d
  workload: training
  gpu: {models: [L4]}
  where: {clouds: [aws], regions: [us-east-1], dataRegion: aws/eu-west-1, maxDistance: region, maxZoneShare: 0%}
  limits: {maxNodes: 4}
- name: e
  workload: training
  gpu: {models: [L4]}
  where: {clouds: [aws], regions: [us-east-1], dataRegion: aws/us-east-1, maxDistance: near}
  limits: {maxNodes: 4}
";
    let book = stoker_pricing::embedded().expect("the embedded tables");
    let told = said(text, Some(&book));
    let expected = [
        "4:24: defaults.dataRegion \"us-est-1\" is not a known region of aws: nearest is us-east-1",
        "9:60: pools[0].where.datasetGiB -5 is below 0: raise it",
        "14:60: pools[1].where.datasetGiB 99999999 is above 1048576, a PiB, more than a node reads: write GiB",
        "14:82: pools[1].where.dataRegion \"ibm\" is not a known cloud: known are aws, azure, coreweave, digitalocean, gcp, \
         hyperstack, lambda, nebius, oci, runpod, verda, vultr",
        "19:88: pools[2].where.maxDistance continent allows only europe, where aws/eu-west-1 is, and the pool names only \
         aws/us-east-1 in north-america: name a region there, or write any",
        "24:88: pools[3].where.maxDistance region allows only aws/eu-west-1, where the data is and the pool may not buy: \
         name aws in clouds and eu-west-1 in regions, or write continent or any",
        "24:110: pools[3].where.maxZoneShare is 0%, which no node fits: raise it, or remove it",
        "29:88: pools[4].where.maxDistance \"near\" is not one of region, continent, any",
    ];
    assert_eq!(told, expected.map(|line| format!("policy.yaml:{line}")).join("\n"));
}

const MANY_FAULTS: &str = "\
apiVersion: stoker.dev/v1
kind: Policy
clusterName: Demo
colour: red
pools:
- name: inference
  workload: infrence
  gpu: {models: [L4, L5], count: 0}
  where:
    clouds: [aws]
    regions: us-east-1
  limits:
    minNodes: 4
    maxNodes: 2
    maxUsdPerHour: -1
- name: inference
  workload: training
  gpu: {models: []}
  where: {clouds: [aws], regions: [us-east-9]}
  warmFloor: {nodes: 2}
  limits: {maxNodes: 1, maxNodes: 2}
quotas:
- {name: L-1, cloud: aws, vcpu: 8}
- {name: L-2, cloud: aws}
";

fn book() -> PriceBook {
    let mut book = PriceBook::new();
    let model = GpuModel::new("L4").expect("an id");
    book.insert_gpu(GpuSpec {
        model,
        memory: MiB::from_gib(24),
        bandwidth_gb_s: None,
        fp16_gflops: None,
        fp8_gflops: None,
        compute_capability: None,
        mig_max_instances: None,
        mig_profiles: Vec::new(),
        nvlink_gb_s: None,
        names: GpuNames::default(),
    });
    let place = Place {
        cloud: Cloud::new("aws").expect("an id"),
        region: Region::new("us-east-1").expect("an id"),
        zone: ZoneId::new("use1-az1").expect("an id"),
        instance_type: InstanceType::new("g6.xlarge").expect("an id"),
    };
    let quote = Quote { price: UsdPerHour(804_800), kind: QuoteKind::List, as_of: None, source: "test".into() };
    book.insert(Market { place, capacity_type: CapacityType::OnDemand }, Entry::Price(quote));
    book
}

#[test]
fn every_fault_comes_at_once() {
    let expected = "policy.yaml:1:13: apiVersion \"stoker.dev/v1\" is not a supported version: write stoker.dev/v1alpha1
policy.yaml:3:14: clusterName \"Demo\" has 'D': use only lower-case letters, digits and '-'
policy.yaml:4:1: colour is not a field here: known are advise, apiVersion, clusterName, commitments, defaults, karpenter, kind, limits, pools, prices, prometheus, quotas, suppliers
policy.yaml:7:13: pools[0].workload \"infrence\" is not one of training, inference, batch, dev: did you mean inference?
policy.yaml:8:22: pools[0].gpu.models[1] \"L5\" is not a known GPU model: nearest is L4
policy.yaml:8:34: pools[0].gpu.count is 0, below 1: name how many GPUs a node has
policy.yaml:11:14: pools[0].where.regions must be a list, is the text \"us-east-1\": write [us-east-1]
policy.yaml:12:3: pools[0].limits minNodes 4 is above maxNodes 2: lower minNodes or raise maxNodes
policy.yaml:15:20: pools[0].limits.maxUsdPerHour -1 is negative: name a rate, or close the pool with maxNodes: 0
policy.yaml:16:9: pools[1].name \"inference\" is the name of pools[0] too: give each pool its own
policy.yaml:18:9: pools[1].gpu.models is empty: name at least one GPU model, such as L4
policy.yaml:19:36: pools[1].where.regions[0] \"us-east-9\" is not a known region of aws: nearest is us-east-1
policy.yaml:20:22: pools[1].warmFloor.nodes 2 is above limits.maxNodes 1: lower it or raise that
policy.yaml:21:25: pools[1].limits.maxNodes is given twice, first on line 21: keep one
policy.yaml:23:27: quotas[0].vcpu is not a field here: did you mean vcpus?
policy.yaml:24:3: quotas[1] has no limit: give one of vcpus and gpus";
    assert_eq!(said(MANY_FAULTS, Some(&book())), expected);
    assert_eq!(said(GOOD, Some(&book())), "");
}

#[test]
fn yaml_words_are_those_of_version_1_2() {
    // In YAML 1.1 this cluster would be called `false`.
    assert_eq!(parse("p", &GOOD.replace("demo", "no"), None).expect("a policy").cluster.as_str(), "no");
    assert_eq!(parse("p", &GOOD.replace("clusterName:", "\"clusterName\":"), None).expect("a policy").cluster.as_str(), "demo");
    let shared = GOOD.replace("where: {", "where: &aws {")
        + "- {name: b, workload: dev, gpu: {models: [L4]}, where: *aws, limits: {maxNodes: 0x10}}\n";
    let policy = parse("p", &shared, None).expect("a policy");
    assert_eq!(policy.pools[1].regions, policy.pools[0].regions);
    assert_eq!(policy.pools[1].limits.max_nodes, 16);
    let crlf = parse("p", &format!("\u{feff}{}", GOOD.replace('\n', "\r\n")), None).expect("a policy");
    assert_eq!(crlf.pools.len(), 1);
}

#[test]
fn money_is_read_to_the_digit() {
    for (written, micros) in [("0.1", 100_000), ("60", 60_000_000), ("0.8048", 804_800), ("1e2", 100_000_000), (".5", 500_000)]
    {
        let text = format!("{GOOD}    maxUsdPerHour: {written}\n");
        let policy = parse("p", &text, None).expect("a policy");
        assert_eq!(policy.pools[0].limits.max_usd_per_hour, Some(UsdPerHour(micros)), "{written}");
    }
}

/// A small generator of numbers, the same on each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides.max(1)
    }
}

/// Damages a text the way hands and editors do.
fn damage(text: &str, dice: &mut Dice) -> String {
    const SCRAPS: [&str; 24] = [
        ":", "- ", "[", "]", "{", "}", "\"", "'", "#", "&a ", "*a", "!!int ", "|", ">", "%", "@", "\t", "\n", "\u{0}", "é",
        "---\n", "<<: ", "? ", "-1",
    ];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = dice.below(lines.len());
    match dice.below(6) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines[at].insert(0, ' '),
        3 => {
            let other = dice.below(lines.len());
            lines.swap(at, other);
        }
        kind => {
            let characters: Vec<usize> = lines[at].char_indices().map(|(at, _)| at).chain([lines[at].len()]).collect();
            let place = characters[dice.below(characters.len())];
            if kind == 4 {
                lines[at].truncate(place);
            } else {
                lines[at].insert_str(place, SCRAPS[dice.below(SCRAPS.len())]);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn damaged_files_get_faults_with_lines_of_the_file() {
    let (mut dice, book, mut refused) = (Dice(20), book(), 0);
    for _ in 0..600 {
        let mut text = example().to_owned();
        for _ in 0..=dice.below(4) {
            text = damage(&text, &mut dice);
        }
        let Err(faults) = parse("policy.yaml", &text, Some(&book).filter(|_| dice.below(2) == 0)) else { continue };
        refused += 1;
        assert!(faults.iter().count() > 0, "refused without a word:\n{text}");
        for fault in &faults {
            let line = fault.line.checked_sub(1).and_then(|line| text.lines().nth(line));
            let columns = line.unwrap_or_else(|| panic!("{fault:?} has no line in:\n{text}")).chars().count() + 1;
            assert!((1..=columns).contains(&fault.column), "{fault:?} stands beyond its line in:\n{text}");
            assert!(!fault.message.contains('\n') && fault.message.len() < 1_000, "{fault:?}");
        }
    }
    assert!(refused > 300, "the damage should mostly show, refused {refused}");
}

#[test]
fn the_schema_says_nothing_that_reading_by_it_would_overlook() {
    let schema = schema();
    assert_eq!(schema["title"], "Stoker policy");
    assert!(schema.get("$id").is_none());
    assert_eq!(unread_keywords(&schema), Vec::<String>::new());
}

/// The keywords of a schema that reading by it does not know, with their place: serde would still refuse what breaks them, but only one
/// fault at a time.
fn unread_keywords(schema: &serde_json::Value) -> Vec<String> {
    const READ: [&str; 11] =
        ["$ref", "type", "const", "enum", "minimum", "maximum", "required", "items", "additionalProperties", "anyOf", "oneOf"];
    const REMARKS: [&str; 6] = ["$schema", "examples", "title", "description", "default", "format"];
    let mut unread = Vec::new();
    let mut open = vec![("#".to_owned(), schema)];
    while let Some((place, schema)) = open.pop() {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let place = format!("{place}/{keyword}");
            match (keyword.as_str(), value) {
                ("properties" | "$defs", serde_json::Value::Object(schemas)) => {
                    open.extend(schemas.iter().map(|(key, schema)| (format!("{place}/{key}"), schema)));
                }
                ("anyOf" | "oneOf", serde_json::Value::Array(schemas)) => {
                    open.extend(schemas.iter().map(|schema| (place.clone(), schema)))
                }
                ("items" | "additionalProperties", schema) => open.push((place, schema)),
                (known, _) if READ.contains(&known) || REMARKS.contains(&known) => {}
                _ => unread.push(place),
            }
        }
    }
    unread
}
