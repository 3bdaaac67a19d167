#!/usr/bin/env bash
# Runs the short form of every bench and compares its ratios with those on record in tests/benches/record.txt.
#
#   tests/benches.sh                    every bench; a ratio fails, best of three, when what it has above 1 has doubled
#   tests/benches.sh NAME ...           only these benches
#   tests/benches.sh --record [NAME...] measures three times instead and writes the best on record; for a quiet machine
#   tests/benches.sh --full [NAME...]   runs the benches themselves, once and in a release build, and writes their ratios on record
#
# The short forms run in the build of the tests, with the little optimisation of tests/profile.sh and Cargo.toml: they are compared with
# each other only. It is the full ones that the bars are for.
# Closes with `N passed, N failed`, a ratio each.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=profile.sh
source tests/profile.sh

record=tests/benches/record.txt
mode=compare
case ${1:-} in
  --record | --full) mode=${1#--} && shift ;;
  -*) echo "benches.sh: unknown option $1; see the top of $0" >&2 && exit 2 ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
short=--short
if [ "$mode" = full ]; then short=; fi
tests/build.sh $([ "$mode" != full ] || echo --release) | awk '$1 == "bench"' >"$dir/benches"

# Reads the record and then the ratios of all runs so far. Every ratio is a cost: the least is the best.
# What lies above 1 may double, and so may a ratio below 1: machines differ in their caches by that much, and the record was measured with
# nothing beside it. A quarter is noise: a call over loopback waits for a thread to wake, which takes as long as the call itself.
#   judge all|some|"" RATIOS
judge() {
  awk -v final="$1" '
    function limit(ratio) { return ratio < 0.625 ? 2 * ratio : ratio < 1 ? 1.25 : ratio + (ratio < 1.25 ? 0.25 : ratio - 1) }
    /^#/ || NF == 0 { next }
    FNR == NR { known[$1 " " $2] = $3; next }
    $1 == "ratio" { key = $2 " " $3; if (!(key in best) || $4 < best[key]) best[key] = $4 }
    END {
      for (key in best) {
        if (!(key in known)) { verdict = "FAIL"; why = "is not on record: run tests/benches.sh --record" }
        else {
          verdict = best[key] > limit(known[key]) ? "FAIL" : "ok"
          why = sprintf("%.3f, on record %.3f", best[key], known[key])
        }
        if (verdict == "FAIL") bad++
        if (final) printf "%-4s %-32s %s\n", verdict, key, why
      }
      for (key in known) if (final == "all" && !(key in best)) { bad++; printf "FAIL %-32s is on record and was not measured\n", key }
      exit bad > 0
    }' "$record" "$2"
}

# Runs the benches on standard input, one after another; their ratios go into a file each.
run() {
  local name path begun
  while read -r _ name path; do
    : >"$dir/$name.ratios"
    for run in 1 2 3; do
      begun=$SECONDS
      if ! "$path" --bench $short >"$dir/$name.out" 2>&1 </dev/null; then
        tail -n 20 "$dir/$name.out" >&2
        echo "bench $name failed" >&2
        return 1
      fi
      grep '^ratio ' "$dir/$name.out" >>"$dir/$name.ratios" || { echo "bench $name prints no ratio" >&2; return 1; }
      echo "bench $name, run $run: $((SECONDS - begun)) s"
      if [ "$mode" = full ] || { [ "$mode" = compare ] && judge "" "$dir/$name.ratios" >/dev/null; }; then break; fi
    done
  done
}

if [ $# -gt 0 ]; then
  awk -v asked=" $* " 'index(asked, " " $2 " ")' "$dir/benches" >"$dir/asked"
  mv "$dir/asked" "$dir/benches"
fi
[ -s "$dir/benches" ] || { echo "no such bench was built" >&2; exit 1; }
# These tell how long a call takes, and have the machine to themselves.
alone='^bench (doors|expander) '
# These wait for most of their time: a comparison runs them beside the others.
waits='^bench (chaos|probes) '
status=0
if [ "$mode" = compare ]; then
  run < <(grep -E "$alone" "$dir/benches") || status=1
  run < <(grep -E "$waits" "$dir/benches") &
  beside=$!
  run < <(grep -vE "$alone|$waits" "$dir/benches") || status=1
  wait "$beside" || status=1
else
  run <"$dir/benches" || status=1
fi
[ "$status" = 0 ] || exit 1
cat "$dir"/*.ratios >"$dir/ratios"

if [ "$mode" != compare ]; then
  processor=$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)
  awk -v mode="$mode" -v day="$(date -u +%F)" -v on="$(nproc) cores of ${processor:-an unknown processor}" '
    function line(bench, figure, short, full, bar) {
      printf "%-10s %-26s %8s %8s %8s  %s  %s\n", bench, figure, short, full, bar, day, on
    }
    $1 == "ratio" { key = $2 " " $3; if (!(key in best) || $4 < best[key]) best[key] = $4; next }
    FNR == NR { next }
    /^#/ || NF == 0 { print; next }
    {
      key = $1 " " $2
      if (!(key in best)) { print; next }
      if (mode == "full") $4 = best[key]; else $3 = best[key]
      line($1, $2, $3, $4, $5)
      delete best[key]
    }
    END {
      for (key in best) {
        split(key, of, " ")
        if (mode == "full") line(of[1], of[2], "-", best[key], "-"); else line(of[1], of[2], best[key], "-", "-")
      }
    }' "$dir/ratios" "$record" >"$dir/record"
  { grep '^#' "$dir/record"; grep -v '^#' "$dir/record" | sort -k 1,2; } >"$record"
  echo "written: $record"
  exit
fi
judge "$([ $# -gt 0 ] || echo all)${1:+some}" "$dir/ratios" >"$dir/verdicts" || status=1
sort -k 2 "$dir/verdicts"
passed=$(grep -c '^ok ' "$dir/verdicts" || true)
failed=$(grep -c '^FAIL ' "$dir/verdicts" || true)
echo "$passed passed, $failed failed"
exit "$status"
