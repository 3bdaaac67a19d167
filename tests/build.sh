#!/usr/bin/env bash
# Builds the tests, programs and benches of the whole workspace at once, and says where each is: `KIND NAME PATH`, one a line.
# Cargo unites the features of what one command names: a command for a part of the workspace would build all of it once more.
# After `cargo test --workspace` this builds the benches alone, and after that nothing.
#
#   tests/build.sh [CARGO_OPTION...]   such as --release
#   STOKER_BUILT   a file with its output: nothing is built, and that is said again
set -euo pipefail
if [ -n "${STOKER_BUILT:-}" ] && [ $# -eq 0 ]; then exec cat "$STOKER_BUILT"; fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo test --workspace --all-targets --no-run --quiet --message-format=json "$@" |
  sed -n 's/.*"kind":\["\([a-z]*\)"\].*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2 \3/p'
