//! Whatever a table holds, the loader answers a book or faults; it never panics.

use super::table;
use crate::{TableFaults, load};

/// A small generator, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (n.max(1) as u64)).unwrap()
    }
}

const NAMES: [&str; 8] = [
    "aws.csv",
    "gcp.csv",
    "gpu-specs.csv",
    "gcp-zones.csv",
    "aws-spot-advisor.csv",
    "aws-types.csv",
    "regions.csv",
    "egress.csv",
];

/// The header and some lines of a table, from anywhere in it.
fn excerpt(name: &str, random: &mut Random) -> Vec<u8> {
    let lines: Vec<&str> = table(name).lines().collect();
    let from = 1 + random.below(lines.len() - 20);
    format!("{}\n{}\n", lines[0], lines[from..from + 15].join("\n")).into_bytes()
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const STRANGE: [&[u8]; 10] =
        [b"\"", b",", b"\n", b"\0", b"\xff", b"-", b"9999999999999999999999", b"\xe2\x80\xa8", b"1e9", b"\r"];
    let at = random.below(bytes.len());
    let end = (at + random.below(40)).min(bytes.len());
    match random.below(5) {
        0 => bytes[at] = bytes[at].wrapping_add(u8::try_from(random.below(255)).unwrap()),
        1 => drop(bytes.drain(at..end)),
        2 => drop(bytes.splice(at..at, STRANGE[random.below(STRANGE.len())].iter().copied())),
        3 => bytes.truncate(at.max(1)),
        _ => {
            let copy = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, copy));
        }
    }
}

#[test]
fn mutated_tables_are_books_or_faults() {
    let mut random = Random(0x5eed);
    let mut refused = 0;
    for round in 0..400 {
        let mut tables = NAMES.map(|name| (name, excerpt(name, &mut random)));
        for _ in 0..=random.below(4) {
            let which = random.below(tables.len());
            mutate(&mut tables[which].1, &mut random);
        }
        let loaded: Result<_, TableFaults> =
            load(tables.iter().map(|(name, bytes)| (*name, bytes.as_slice())), jiff::Timestamp::MAX);
        if let Err(faults) = loaded {
            refused += 1;
            assert!(!faults.faults().is_empty(), "round {round}");
            assert!(faults.to_string().lines().all(|line| !line.is_empty()), "round {round}: {faults}");
            assert!(faults.to_string().len() < 50 * 1000, "round {round}");
        }
    }
    assert!(refused > 100, "only {refused} of 400 mutated sets were refused");
}

#[test]
fn tables_cut_anywhere_do_not_panic() {
    let whole = table("gpu-clouds.csv").as_bytes();
    let others = NAMES.map(|name| (name, table(name).lines().next().unwrap().as_bytes()));
    for end in (0..whole.len()).step_by(97) {
        let cut = [("gpu-clouds.csv", &whole[..end])];
        let _ = load(others.into_iter().chain(cut), jiff::Timestamp::MAX);
    }
}
