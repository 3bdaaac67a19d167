#!/usr/bin/env bash
# Compares the figures of capbench with those on record in tests/capbench, which the pages show.
#
#   tests/capbench.sh [quick]                       three days of drawn demand, as CI does
#   tests/capbench.sh drawn                         14 days and two seeds
#   tests/capbench.sh trace --trace FILE            a published list of pods, on the types of tests/capbench/types.csv
#   tests/capbench.sh --write [...]                 puts on record instead
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=profile.sh
source tests/profile.sh

write=
if [ "${1:-}" = --write ]; then write=1 && shift; fi
form=${1:-quick}
if [ $# -gt 0 ]; then shift; fi
case $form in
  quick)
    [ $# -eq 0 ] || { echo "capbench.sh: quick takes no options" >&2 && exit 2; }
    set -- --quick
    ;;
  drawn) ;;
  trace) set -- --types tests/capbench/types.csv "$@" ;;
  *) echo "capbench.sh: unknown form $form; see the top of $0" >&2 && exit 2 ;;
esac
record=tests/capbench/$form
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
[ -n "${STOKER_BUILT:-}" ] || cargo build --quiet --workspace --bin capbench
"${CARGO_TARGET_DIR:-target}/debug/capbench" "$@" --out "$found"
# Nobody looks at the pictures of three days.
if [ "$form" = quick ]; then rm -f "$found"/*.svg; fi
if [ -n "$write" ]; then
  rm -rf "$record" && cp -r "$found" "$record"
  echo "written: $record"
elif ! [ -d "$record" ] || ! diff -ru "$record" "$found"; then
  echo "figures differ from those on record: put them there with tests/capbench.sh --write $form" >&2
  exit 1
fi
