#!/usr/bin/env bash
# Takes each defence of the service away in turn, by its switch, and demands that the test of that row notices.
#
#   tests/sabotage.sh                 every switch, with the test of its row
#   tests/sabotage.sh NAME ...        only these switches
#   EVERY_TEST=1 tests/sabotage.sh    every switch with all tests: also tells which others fail beside the one that must
#
# Needs nothing but cargo. Closes with `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(cargo test --quiet -p stoker-tests --test conformance --no-run --message-format=json |
  sed -n 's/.*"executable":"\([^"]*conformance[^"]*\)".*/\1/p' | tail -n 1)
[ -x "$binary" ] || { echo "the conformance tests were not built" >&2; exit 1; }

passed=0
failed=0
while IFS=$'\t' read -r _ switch test; do
  if [ $# -gt 0 ] && [[ " $* " != *" $switch "* ]]; then continue; fi
  if [ -n "${EVERY_TEST:-}" ]; then filter=(); else filter=("$test" --exact); fi
  log=$(STOKER_SABOTAGE="$switch" timeout 300 "$binary" "${filter[@]}" 2>&1) || true
  # The harness says so itself: a test that was not found, or a process that died, is no failure that counts.
  if grep -q "^test $test \.\.\. FAILED" <<<"$log"; then
    passed=$((passed + 1))
    others=$(grep '^test .* \.\.\. FAILED' <<<"$log" | awk '{print $2}' | grep -vx "$test" | tr '\n' ' ' || true)
    echo "ok   $switch: $test fails without it${others:+; also $others}"
  else
    failed=$((failed + 1))
    echo "FAIL $switch: $test does not notice"
    tail -n 3 <<<"$log" | sed 's/^/     /'
  fi
done < <("$binary" rows::table --exact --ignored --nocapture | grep -P '^row\t')

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
