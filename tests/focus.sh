#!/usr/bin/env bash
# Holds what `stoker report --focus` prints (its goldens, without commitments and with) against FOCUS 1.0, by the field's own focus-validator; and the same without a
# column, which has to fail. Needs Python with pip. Closes with `N passed, N failed`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if ! python3 -m pip install --quiet --root-user-action=ignore --no-deps --target "$dir/python" \
  --requirement .ci/focus-validator.txt >"$dir/pip" 2>&1; then
  [ -z "${CI:-}" ] || { cat "$dir/pip" >&2; exit 1; }
  echo "focus.sh: skipped: pip has no focus-validator here: $(tail -n 1 "$dir/pip")" >&2
  exit 0
fi

# The snapshots without their head of three lines.
for name in report-focus report-focus-commitments; do
  tail -n +4 "provider/tests/golden/$name.snap" >"$dir/$name.csv"
  [ "$(wc -l <"$dir/$name.csv")" -gt 5 ] || { echo "focus.sh: the golden $name has no rows" >&2; exit 1; }
done
python3 - "$dir/report-focus.csv" "$dir/broken.csv" <<'PYTHON'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], newline="")))
at = rows[0].index("BilledCost")
csv.writer(open(sys.argv[2], "w", newline="")).writerows(row[:at] + row[at + 1:] for row in rows)
PYTHON

# FILE: whether it is valid. The program ends with 0 either way, and looks for its list of currencies where it runs.
is_valid() {
  (cd "$dir/python" && PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 python3 bin/focus-validator --data-file "$1" \
    --validate-version 1.0 --column-namespace x_) >"$dir/said" 2>&1
  grep -q '^Validation succeeded' "$dir/said"
}

passed=0 failed=0
# WORD FILE: counts, and shows what went wrong.
expect() {
  local said=broken
  is_valid "$2" && said=valid
  if [ "$said" = "$1" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "focus.sh: $2 is $said and should be $1:" >&2
    tail -n 40 "$dir/said" >&2
  fi
}
expect valid "$dir/report-focus.csv"
expect valid "$dir/report-focus-commitments.csv"
expect broken "$dir/broken.csv"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
