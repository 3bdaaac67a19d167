//! The words that the product writes into a cluster, found in its sources: reasons of Events and conditions, and keys of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::page::root;

/// Reasons and keys.
pub(crate) fn used() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for folder in ["core/src", "karpenter/src", "service/src", "simulated/src", "src"] {
        collect(&root().join("provider").join(folder), &mut words);
    }
    assert!(words.len() > 30, "the sources are not where they were: {words:?}");
    words
}

fn collect(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !["tests", "testing"].contains(&name) {
                collect(&path, words);
            }
        } else if path.extension().is_some_and(|is| is == "rs") && !["tests.rs", "testing.rs"].contains(&name) {
            let text = fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for line in product.lines().filter(|line| !line.trim_start().starts_with("//")) {
                words.extend(of_line(line));
            }
        }
    }
}

/// What a line of the product writes: `=> "NodeLost"` of a reason, `About::Pod(..), .., "NoSuchNode"`, or a key.
fn of_line(line: &str) -> Vec<String> {
    let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
    let camel = |word: &&str| {
        word.chars().filter(char::is_ascii_uppercase).count() > 1
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphabetic())
            && word.chars().any(|c| c.is_ascii_lowercase())
    };
    let tells =
        (line.contains("Self::") && line.contains(".. } => \"")) || line.contains("Verdict::") || line.contains("About::");
    let reasons = quoted.iter().copied().filter(|word| tells && camel(word));
    // An API version and the reporter's name are no keys.
    let keys = quoted.iter().copied().filter(|word| word.starts_with("stoker.dev/") && word.len() > 11);
    let keys = keys.filter(|word| !word.ends_with("v1alpha1") && !word.ends_with("/stoker"));
    reasons.chain(keys).map(str::to_owned).collect()
}
