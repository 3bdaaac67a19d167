#!/usr/bin/env bash
# Takes each defence of the service away in turn, by its switch, and demands that the test of that row notices.
#
# The conformance tests and the scenarios of EC2's supplier each have a table of rows: a switch, and the test that it must make fail.
#
#   tests/sabotage.sh                 every switch, with the test of its row
#   tests/sabotage.sh NAME ...        only these switches
#   EVERY_TEST=1 tests/sabotage.sh    every switch with all tests: also tells which others fail beside the one that must
#   JOBS=1 tests/sabotage.sh          one at a time; else two
#
# Needs nothing but cargo. Closes with `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."

built=$(tests/build.sh)

# BINARY SWITCH TEST: whether the test notices that the switch is off
without() {
  local binary=$1 switch=$2 test=$3 filter=() log others
  if [ -z "${EVERY_TEST:-}" ]; then filter=("$test" --exact); fi
  log=$(STOKER_SABOTAGE="$switch" timeout 300 "$binary" "${filter[@]}" 2>&1) || true
  # The harness says so itself: a test that was not found, or a process that died, is no failure that counts.
  if grep -q "^test $test \.\.\. FAILED" <<<"$log"; then
    others=$(grep '^test .* \.\.\. FAILED' <<<"$log" | awk '{print $2}' | grep -vx "$test" | tr '\n' ' ' || true)
    echo "ok   $switch: $test fails without it${others:+; also $others}"
  else
    printf 'FAIL %s: %s does not notice\n%s\n' "$switch" "$test" "$(tail -n 3 <<<"$log" | sed 's/^/     /')"
  fi
}
export -f without

rows=""
for name in conformance scenarios; do
  binary=$(awk -v name="$name" '$1 == "test" && $2 == name { print $3 }' <<<"$built")
  [ -x "$binary" ] || { echo "the tests of $name were not built" >&2; exit 1; }
  rows+=$("$binary" rows::table --exact --ignored --nocapture | grep -P '^row\t' | sed "s|^row|$binary|")$'\n'
done
results=$(mktemp)
trap 'rm -f "$results"' EXIT
while IFS=$'\t' read -r binary switch test; do
  [ -n "$switch" ] || continue
  if [ $# -eq 0 ] || [[ " $* " == *" $switch "* ]]; then printf '%s\0%s\0%s\0' "$binary" "$switch" "$test"; fi
done <<<"$rows" | xargs -0 -r -n 3 -P "${JOBS:-2}" bash -c 'without "$@"' without | tee "$results"

passed=$(grep -c '^ok ' "$results" || true)
failed=$(grep -c '^FAIL ' "$results" || true)
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
