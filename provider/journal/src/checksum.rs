//! Checksums: they tell a row that was changed, or that stands in another's place.

/// The checksum of a step. Its number and its base are part of it.
pub fn of_step(seq: i64, base: i64, body: &str) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seq.to_le_bytes()).update(&base.to_le_bytes()).update(body.as_bytes());
    first(&hasher)
}

/// The hash of a policy or price book.
pub fn of_content(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().to_string()
}

/// The checksum of a row.
pub(super) fn of_row(numbers: &[i64], texts: &[&str]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    for text in texts {
        // Its length tells where a text ends.
        hasher.update(&text.len().to_le_bytes()).update(text.as_bytes());
    }
    first(&hasher)
}

/// The checksum of an action that is not written down itself: short, as it only tells it from others of the same plan.
pub(super) fn of_action(body: &str) -> u32 {
    let mut first = [0; 4];
    blake3::Hasher::new().update(body.as_bytes()).finalize_xof().fill(&mut first);
    u32::from_le_bytes(first)
}

fn first(hasher: &blake3::Hasher) -> i64 {
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    i64::from_le_bytes(first)
}
