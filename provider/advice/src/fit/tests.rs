use std::num::{NonZeroU16, NonZeroU32};

use super::*;
use stoker_core::base::ids::{Cloud, InstanceType, Region, ZoneId};
use stoker_core::market::offer::{Arch, CapacityType, GpuNames, Place};

/// Name, model, GiB, GPUs in thousandths, price in micro-dollars.
const TYPES: [(&str, &str, u64, u32, i64); 8] = [
    ("g4dn.xlarge", "T4", 16, 1_000, 526_000),
    ("g6.xlarge", "L4", 24, 1_000, 804_800),
    ("g6.12xlarge", "L4", 24, 4_000, 4_601_600),
    ("g6f.xlarge", "L4", 24, 250, 250_000),
    ("p4de.24xlarge", "A100", 80, 8_000, 27_447_050),
    ("p5.48xlarge", "H100", 80, 8_000, 55_040_000),
    ("p6-b300.48xlarge", "B300", 268, 8_000, 142_416_000),
    ("odd", "Mystery", 96, 8_000, 1_000_000),
];

/// Model, GiB, GB/s, FP16 and FP8 gigaflops, capability.
type Row = (&'static str, u64, u32, Option<u64>, Option<u64>, &'static str);
const GPUS: [Row; 5] = [
    ("T4", 16, 320, Some(65_000), None, "7.5"),
    ("L4", 24, 300, Some(121_000), Some(242_000), "8.9"),
    ("A100", 80, 2039, Some(312_000), None, "8.0"),
    ("H100", 80, 3350, Some(989_000), Some(1_979_000), "9.0"),
    ("B300", 268, 8000, None, None, "10.3"),
];

fn market(name: &str) -> Market {
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new(name).unwrap(),
    };
    Market { place, capacity_type: CapacityType::OnDemand }
}

fn book() -> (PriceBook, Vec<(Market, UsdPerHour)>) {
    let mut book = PriceBook::new();
    for (model, gib, gb_s, fp16_gflops, fp8_gflops, capability) in GPUS {
        book.insert_gpu(GpuSpec {
            model: GpuModel::new(model).unwrap(),
            memory: MiB::from_gib(gib),
            bandwidth_gb_s: Some(gb_s),
            fp16_gflops,
            fp8_gflops,
            compute_capability: capability.parse().ok(),
            mig_max_instances: None,
            mig_profiles: Vec::new(),
            nvlink_gb_s: None,
            names: GpuNames::default(),
        });
    }
    let offers = TYPES.map(|(name, model, gib, gpus, price)| {
        book.insert_spec(InstanceSpec {
            cloud: Cloud::new("aws").unwrap(),
            instance_type: InstanceType::new(name).unwrap(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(gpus),
            gpu_memory: MiB::from_gib(gib),
            vcpus: None,
            memory: None,
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        (market(name), UsdPerHour(price))
    });
    (book, offers.into())
}

fn ask(params: &str, precision: Precision, context: &str, mode: Mode) -> Ask {
    let batch = NonZeroU16::new(mode.default_batch()).unwrap();
    Ask { params: params.parse().unwrap(), precision, context: context.parse().unwrap(), batch, mode, training: None }
}

fn estimated(ask: &Ask) -> Estimate {
    estimated_for(ask, 1)
}

fn estimated_for(ask: &Ask, replicas: u32) -> Estimate {
    let (book, offers) = book();
    let offers: Vec<_> = offers.iter().map(|(market, price)| (market, *price)).collect();
    estimate(ask, NonZeroU32::new(replicas).unwrap(), &book, &offers)
}

fn on<'e>(estimate: &'e Estimate, model: &str, share: u32) -> Option<&'e Fit> {
    estimate.fits.iter().find(|fit| fit.card.model.as_str() == model && fit.card.share == Milli(share))
}

fn gpus_of(ask: &Ask, model: &str) -> Option<u32> {
    on(&estimated(ask), model, 1_000).map(|fit| fit.gpus)
}

#[test]
fn the_rule_of_layers_meets_known_models() {
    // Llama 7B has 32 layers of 4,096, 13B 40 of 5,120, 70B 80 of 8,192; GPT-3 175B 96 of 12,288. By the rule:
    // 7e9 / 196,608 = 35,604, cube root 32.9; 13e9 → 40.4; 70e9 → 70.9; 175e9 → 96.2.
    for (params, layers, hidden) in [("7B", 33, 4_224), ("13B", 40, 5_120), ("70B", 71, 9_088), ("175B", 96, 12_288)] {
        let rule = ask(params, Precision::Fp16, "8k", Mode::Inference).layers();
        assert_eq!((rule.layers, rule.hidden, rule.kv_width), (layers, hidden, 1_024), "{params}");
    }
    // The smallest: 1e6 / 196,608 = 5.1, cube root 1.7: 2 layers of 256, whose keys are no wider than they.
    let small = ask("1M", Precision::Fp16, "1", Mode::Inference).layers();
    assert_eq!((small.layers, small.hidden, small.kv_width), (2, 256, 256));
}

#[test]
fn seven_billion_in_16_bits_fit_one_gpu_of_24_gib() {
    let seven = ask("7B", Precision::Fp16, "8k", Mode::Inference);
    // Weights 7e9 × 2. KV cache 2 × 2 × 33 layers × 1,024 × 8,192 tokens. Workspace 5 % of the weights.
    let memory = seven.memory();
    assert_eq!(
        (memory.weights, memory.kv_cache, memory.activations, memory.total()),
        (14_000_000_000, 1_107_296_256, 700_000_000, 15_807_296_256)
    );
    // 90 % of 24 GiB are 23.2e9, of 16 GiB 15.5e9, which is a little too small: two T4, but no T4 node here has two.
    assert_eq!(gpus_of(&seven, "L4"), Some(1));
    let (card, why) = estimated(&seven).misfits.into_iter().find(|(card, _)| card.model.as_str() == "T4").unwrap();
    assert_eq!((card.memory, why.to_string().as_str()), (MiB::from_gib(16), "needs 2 in one node, offers have at most 1"));
    // A quarter of an L4 holds 6 GiB and cannot be doubled.
    assert_eq!(on(&estimated(&seven), "L4", 250), None);
    // In four bits 3.5e9 + 1.1e9 + 0.2e9 it holds the model.
    let cut = estimated(&Ask { precision: Precision::Int4, ..seven });
    let slice = on(&cut, "L4", 250).unwrap();
    assert_eq!((slice.gpus, slice.replica, slice.card.memory), (1, UsdPerHour(250_000), MiB::from_gib(6)));
}

#[test]
fn seventy_billion_need_two_of_80_gib_or_one_in_four_bits() {
    let seventy = ask("70B", Precision::Fp16, "8k", Mode::Inference);
    // 140e9 + 2.4e9 + 7e9 = 149.4e9, and 90 % of 2 × 80 GiB are 154.6e9. L4: 149.4 / 23.2 = 6.4, so 8, and no node has more than 4.
    assert_eq!(seventy.memory().weights, 140_000_000_000);
    assert_eq!((gpus_of(&seventy, "A100"), gpus_of(&seventy, "L4")), (Some(2), None));
    let fit = estimated(&seventy);
    let a100 = on(&fit, "A100", 1_000).unwrap();
    assert_eq!((a100.per_node, a100.nodes), (4, 1));
    // 35e9 + 2.4e9 + 1.75e9 = 39.1e9: one A100, or two L4.
    let cut = Ask { precision: Precision::Int4, ..seventy };
    assert_eq!((gpus_of(&cut, "A100"), gpus_of(&cut, "L4")), (Some(1), Some(2)));
    let (book, offers) = book();
    let offers: Vec<_> = offers.iter().map(|(market, price)| (market, *price)).collect();
    let table = quantized(&seventy, NonZeroU32::MIN, &book, &offers);
    let told: Vec<_> = table.iter().map(|(ask, _, fit)| (ask.precision, fit.as_ref().map(|fit| fit.gpus))).collect();
    assert_eq!(told[0], (Precision::Fp16, Some(2)));
    assert_eq!(told[3], (Precision::Int4, Some(1)));
}

#[test]
fn fine_tuning_takes_sixteen_bytes_a_parameter() {
    let full = ask("7B", Precision::Bf16, "2k", Mode::Finetune);
    // 7e9 × (2 + 2 + 12) = 112e9. Activations: 33 checkpoints of 2 × 4,224 × 2,048 and 34 × 4,224 × 2,048 of one layer.
    let memory = full.memory();
    assert_eq!((memory.weights, memory.gradients, memory.optimizer), (14_000_000_000, 14_000_000_000, 84_000_000_000));
    assert_eq!((memory.activations, memory.kv_cache), (570_949_632 + 294_125_568, 0));
    assert_eq!((gpus_of(&full, "A100"), gpus_of(&full, "T4")), (Some(2), None));
    // In four bits: 3.5e9 of weights, and 1 % of 7e9 × 16 = 1.12e9 of adapters. One L4.
    let frozen = Ask { precision: Precision::Int4, ..full };
    let memory = frozen.memory();
    assert_eq!(memory.weights + memory.gradients + memory.optimizer, 3_500_000_000 + 1_120_000_000);
    assert_eq!(gpus_of(&frozen, "L4"), Some(1));
    // In 8 bits, momentum and variance take 2 bytes in place of 8, and in one of 32 bits 4: 6 × 7e9 and 8 × 7e9.
    let trained = |training| Ask { training: Some(training), ..full }.memory();
    let with = |optimizer| trained(Training { optimizer, ..Training::default() }).optimizer;
    assert_eq!([with(Optimizer::Adam8bit), with(Optimizer::Sgd)], [42_000_000_000, 56_000_000_000]);
    // Adapters on weights of 16 bits: 14e9 and 1.12e9, on one L4.
    let adapters = Training { trained: Trained::Adapters, ..Training::default() };
    let memory = trained(adapters);
    assert_eq!(memory.weights + memory.gradients + memory.optimizer, 14_000_000_000 + 1_120_000_000);
    assert_eq!(gpus_of(&Ask { training: Some(adapters), ..full }, "L4"), Some(1));
    // Weights below 16 bits are not trained, whatever is said.
    assert_eq!(Ask { training: Some(Training::default()), ..frozen }.memory(), frozen.memory());
    // Kept, activations are 34 × 4,224 × 2,048 of each of 33 layers.
    let kept = Training { activations: Activations::Kept, ..Training::default() };
    assert_eq!(trained(kept).activations, 33 * 294_125_568);
    // 112 GB over 8 L4 are 14 GB each, and beside them not even one sequence of 33 × 34 × 4,224 × 4,096 = 19.4 GB has room in 24 GiB. An A100 of
    // 80 GiB has room for it beside 56 GB: two train.
    let long = Ask { training: Some(kept), ..ask("7B", Precision::Bf16, "4k", Mode::Finetune) };
    assert_eq!((gpus_of(&long, "L4"), gpus_of(&long, "A100")), (None, Some(2)));
    // The largest that can be asked for is more than any number, and no small one.
    let batch = NonZeroU16::MAX;
    let largest = Ask { batch, training: Some(kept), ..ask("2T", Precision::Bf16, "16M", Mode::Finetune) };
    assert_eq!(largest.memory().total(), u64::MAX);
}

#[test]
fn generating_is_bound_by_bandwidth_and_reading_by_arithmetic() {
    let estimate = estimated(&ask("7B", Precision::Fp16, "8k", Mode::Inference));
    let l4 = on(&estimate, "L4", 1_000).unwrap();
    let [(Work::Generate, Some(generate)), (Work::Prompt, Some(prompt))] = l4.speeds[..] else { panic!("{l4:?}") };
    // 15.107 GB ÷ (300 GB/s × 60 %) = 83.93 ms a token: 11.914 a second; $0.8048 ÷ 3,600 ÷ 11.9147 × 1e6 = $18.762889.
    assert_eq!((generate.bound, generate.tokens_per_second_milli), (BoundBy::Bandwidth, 11_914));
    assert_eq!(generate.per_million, UsdMicros(18_762_889));
    // 2 × 7e9 FLOP a token ÷ (121 TFLOPS × 40 %): 3,457.142 a second; $0.8048 ÷ 3,600 ÷ 3,457.14 × 1e6 = $0.064665.
    assert_eq!((prompt.bound, prompt.tokens_per_second_milli), (BoundBy::Compute, 3_457_142));
    assert_eq!(prompt.per_million, UsdMicros(64_665));
    // Training takes three times the arithmetic of reading, and adapters twice; and once more where activations are recomputed.
    let train = |precision, activations| {
        let estimate = estimated(&Ask {
            training: Some(Training { activations, ..Training::default() }),
            ..ask("1B", precision, "2k", Mode::Finetune)
        });
        on(&estimate, "A100", 1_000).unwrap().speeds[0].1.unwrap()
    };
    let (full, frozen) = (train(Precision::Fp16, Activations::Kept), train(Precision::Int4, Activations::Kept));
    // 312 TFLOPS × 40 % ÷ (6 × 1e9) = 20,800 tokens a second; ÷ (4 × 1e9) = 31,200. Times round up, so speeds come a trifle short.
    assert_eq!((full.bound, full.tokens_per_second_milli), (BoundBy::Compute, 20_799_999));
    assert_eq!(frozen.tokens_per_second_milli, 31_199_999);
    // ÷ (8 × 1e9) = 15,600; ÷ (6 × 1e9) = 20,800.
    let again = [Precision::Fp16, Precision::Int4].map(|precision| train(precision, Activations::Recomputed));
    assert_eq!(again.map(|speed| speed.tokens_per_second_milli), [15_599_999, 20_799_999]);
}

#[test]
fn unknown_is_neither_fast_nor_free() {
    let eight_bits = estimated(&ask("7B", Precision::Fp8, "8k", Mode::Inference));
    let why = |model: &str| eight_bits.misfits.iter().find(|(card, _)| card.model.as_str() == model).unwrap().1.to_string();
    assert_eq!(why("A100"), "no fp8: its compute capability is 8.0, and fp8 needs 8.9");
    assert_eq!(why("Mystery"), "it is unknown whether it has fp8");
    // B300 calculates in FP8, at a speed that no source tells: it fits, and ranks last.
    let last = eight_bits.fits.last().unwrap();
    assert_eq!((last.card.model.as_str(), last.speeds[0]), ("B300", (Work::Generate, None)));
    // In integers no capability is asked for, and what is not known at all still fits by its memory.
    let integers = estimated(&ask("7B", Precision::Int8, "8k", Mode::Inference));
    assert!(on(&integers, "Mystery", 1_000).is_some_and(|fit| fit.speeds.iter().all(|(_, speed)| speed.is_none())));
}

#[test]
fn more_of_anything_never_needs_less() {
    let sizes = ["1M", "350M", "1.5B", "7B", "70B", "405B", "2T"];
    let asks = sizes.iter().flat_map(|params| {
        Mode::ALL.iter().flat_map(move |&mode| {
            Precision::ALL
                .iter()
                .flat_map(move |&precision| ["1", "8k", "16M"].map(|context| ask(params, precision, context, mode)))
        })
    });
    for one in asks {
        let total = one.memory().total();
        let more = Ask { batch: NonZeroU16::new(u16::MAX).unwrap(), ..one };
        // The largest ask of all stays within 64 bits: with overflow checks on, this would panic.
        assert!(more.memory().total() >= total, "{one:?}");
        assert!(Ask { precision: Precision::Int4, ..one }.memory().weights <= one.memory().weights, "{one:?}");
        let estimate = estimated(&more);
        assert!(estimate.fits.iter().all(|fit| fit.per_node > 0 && fit.replica > UsdPerHour::ZERO), "{one:?}");
        for (_, why) in estimate.misfits {
            assert!(!why.to_string().is_empty());
        }
    }
}

/// What can be bought is a node: a replica that is alone on it pays for all of it.
#[test]
fn a_replica_is_priced_by_the_nodes_that_are_paid_for() {
    let seventy = ask("70B", Precision::Fp16, "8k", Mode::Inference);
    let paid = |replicas| {
        let estimate = estimated_for(&seventy, replicas);
        let a100 = on(&estimate, "A100", 1_000).unwrap();
        (a100.nodes, a100.total, a100.replica)
    };
    // A node of $27.447050 holds four. Five are on two nodes: $54.8941 / 5 = $10.97882.
    assert_eq!(paid(1), (1, UsdPerHour(27_447_050), UsdPerHour(27_447_050)));
    assert_eq!(paid(4), (1, UsdPerHour(27_447_050), UsdPerHour(6_861_763)));
    assert_eq!(paid(5), (2, UsdPerHour(54_894_100), UsdPerHour(10_978_820)));
    // Its tokens cost four times as much alone as among four.
    let cost = |replicas| on(&estimated_for(&seventy, replicas), "A100", 1_000).unwrap().speeds[0].1.unwrap().per_million.0;
    assert!((cost(1) - 4 * cost(4)).abs() < 100, "{} {}", cost(1), cost(4));
}

#[test]
fn the_cheapest_nodes_of_a_kind_are_taken_and_what_is_left_over_is_paid() {
    // One L4: g6.xlarge at $0.8048. Two: all of g6.12xlarge for one replica, half of it where there are two.
    let one = estimated(&ask("7B", Precision::Fp16, "8k", Mode::Inference));
    assert_eq!(on(&one, "L4", 1_000).unwrap().market, market("g6.xlarge"));
    for (replicas, each) in [(1, 4_601_600), (2, 2_300_800)] {
        let estimate = estimated_for(&ask("13B", Precision::Fp16, "8k", Mode::Inference), replicas);
        let fit = on(&estimate, "L4", 1_000).unwrap();
        assert_eq!(
            (fit.market.clone(), fit.gpus, fit.per_node, fit.nodes, fit.total, fit.replica),
            (market("g6.12xlarge"), 2, 2, 1, UsdPerHour(4_601_600), UsdPerHour(each)),
        );
    }
}

#[test]
fn replicas_keep_a_fifth_above_the_measured_need() {
    let replicas = |need, one_does| replicas(need, one_does).map(NonZeroU32::get);
    // 100 a second at 15 each: 6.67 × 1.2 = 8. 10 at 12: exactly 1. 500 at 200: 2.5 × 1.2 = 3, no fourth.
    assert_eq!((replicas(100, 15), replicas(500, 200)), (Some(8), Some(3)));
    assert_eq!((replicas(10, 12), replicas(10, 11), replicas(0, 5), replicas(5, 0)), (Some(1), Some(2), Some(1), None));
    assert_eq!(replicas(u64::MAX, 1), None);
}

#[test]
fn numbers_are_read_as_model_cards_write_them() {
    let params = |text: &str| text.parse::<Params>().map(Params::get).map_err(|error| error.to_string());
    assert_eq!((params("7B"), params("1.5b"), params("350M")), (Ok(7_000_000_000), Ok(1_500_000_000), Ok(350_000_000)));
    assert_eq!((params("2T"), params("7000000000")), (Ok(2_000_000_000_000), Ok(7_000_000_000)));
    for text in ["0", "0B", "3T", "999999", "2.0001T"] {
        assert_eq!(params(text), Err(format!("\"{text}\" is out of range: give 1M to 2T parameters")));
    }
    for text in ["", "B", "7 B", "seven", "-7B", "1e9", "NaN", "7BB", "7B!"] {
        assert_eq!(params(text), Err(format!("\"{text}\" is not a number of parameters: write it like 7B, 1.5B or 350M")));
    }
    let tokens = |text: &str| text.parse::<Tokens>().map(Tokens::get).map_err(|error| error.to_string());
    assert_eq!((tokens("8k"), tokens("8192"), tokens("1M"), tokens("16M")), (Ok(8_192), Ok(8_192), Ok(1 << 20), Ok(1 << 24)));
    for text in ["0", "0k", "17M", "99999999999999999999999", "18446744073709551615M"] {
        assert_eq!(tokens(text), Err(format!("\"{text}\" is out of range: give 1 to 16M tokens")));
    }
    for text in ["", "k", "1e30", "1.5k", "-1", "8kk", "many"] {
        assert_eq!(tokens(text), Err(format!("\"{text}\" is not a number of tokens: write it like 8k or 8192")));
    }
    assert_eq!("fp7".parse::<Precision>().unwrap_err().to_string(), "\"fp7\" is not one of fp16, bf16, fp8, int8, int4");
    let shown = |text: &str| text.parse::<Params>().unwrap().to_string();
    assert_eq!(["7B", "1.5B", "350M", "2T", "0.5B"].map(shown), ["7B", "1.5B", "350M", "2T", "500M"]);
}
