//! The fuzzer: libFuzzer over the target that `STOKER_FUZZ_TARGET` names. `tests/fuzz.sh` builds and runs it.
#![no_main]
#![expect(clippy::expect_used, clippy::panic, reason = "a fuzzer tells of a defect by panicking")]

mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("STOKER_FUZZ_TARGET").unwrap_or_default();
    let named = targets::ALL.iter().find(|target| target.name == name);
    named.map_or_else(|| panic!("STOKER_FUZZ_TARGET={name:?} names no target"), |target| target.run)
});

fuzz_target!(|data: &[u8]| RUN(data));
