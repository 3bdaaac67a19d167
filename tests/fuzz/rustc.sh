#!/bin/sh
# Compiles the workspace's own crates with the counters that libFuzzer reads; `tests/fuzz.sh` makes it Cargo's RUSTC_WORKSPACE_WRAPPER.
# Crates from elsewhere stay as the tests have them, and their generic code is compiled, and so counted, within ours.
case " $* " in
*" --crate-name build_script_"*) exec "$@" ;;
*" --crate-name stoker"* | *" --crate-name fuzz "*) ;;
*) exec "$@" ;;
esac
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares
