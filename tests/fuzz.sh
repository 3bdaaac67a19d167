#!/usr/bin/env bash
# Fuzzes all that reads bytes from outside, with libFuzzer on stable Rust. Our own crates are built once more, with its counters in them;
# those from elsewhere stay as the tests have them. What is kept in tests/fuzz/corpus is played by `cargo test` as well.
# Ends with a table, and with an error where anything was found or a fuzzer did nothing.
#
#   tests/fuzz.sh [SECONDS] [TARGET...]   each target, or these, for that long: 20 s
#   tests/fuzz.sh --keep [TARGET...]      keeps what the last runs found new, as few inputs as have its coverage
#   tests/fuzz.sh --build                 builds them, and runs none
#   tests/fuzz.sh --seeds                 writes the first inputs anew
#   STOKER_FUZZ_JOBS                      fuzzers at a time: 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
corpus=tests/fuzz/corpus
target_dir=${CARGO_TARGET_DIR:-target}
out=$target_dir/fuzz
# Most that is kept of one target, in bytes: eight of these stay below the bound of `cargo test --test fuzz`.
most=60000

if [ "${1:-}" = --seeds ]; then
  exec cargo test --quiet --workspace --test fuzz -- --ignored seeds_are_written
fi
mode=run seconds=20
case "${1:-}" in
--keep) mode=keep && shift ;;
--build) mode=build && shift ;;
[0-9]*) seconds=$1 && shift ;;
esac
all=(policy prices provider expander probes prometheus kubernetes journal)
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
  [[ " ${all[*]} " == *" $target "* ]] || { echo "no target is called $target: ${all[*]}"; exit 2; }
done

fuzzer=$(RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/rustc.sh cargo test --workspace --bin fuzz --features stoker-tests/fuzzing \
  --no-run --quiet --message-format=json | sed -n 's/.*"name":"fuzz".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$fuzzer" ] || { echo "the fuzzers were not built"; exit 1; }
[ "$mode" != build ] || exit 0
# State directories in memory: their files are flushed to the disk with each order.
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$memory/stoker-fuzz.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
export RUST_BACKTRACE=1

# TARGET: its longest input. A journal with prices, and the answers of a round, are long.
longest() {
  case $1 in
  journal) echo 65536 ;;
  prometheus) echo 16384 ;;
  *) echo 8192 ;;
  esac
}

# TARGET [ARGUMENT...]
fuzz() {
  local target=$1
  shift
  STOKER_FUZZ_TARGET=$target "$fuzzer" -rss_limit_mb=512 -timeout=5 -max_len="$(longest "$target")" -print_final_stats=1 "$@"
}

# TARGET: runs it for a while. What it says is in its log.
run() {
  local target=$1 dir=$out/$1
  rm -rf "$dir/findings"
  mkdir -p "$dir/new" "$dir/findings"
  find "$dir/new" -type f >"$dir/before"
  # The words of the first inputs: a fuzzer does not see which texts are compared.
  cat "$corpus/$target"/seed-* | grep -aoE '[A-Za-z][A-Za-z0-9._/-]{2,40}' | sort -u | sed 's/.*/"&"/' >"$dir/words" || true
  fuzz "$target" -max_total_time="$seconds" -dict="$dir/words" -artifact_prefix="$dir/findings/" \
    "$dir/new" "$corpus/$target" >"$dir/log" 2>&1 || true
}

# TARGET: exchanges what is kept for the fewest inputs with the coverage of it and of what is new. Seeds, and what was found, stay.
keep() {
  local target=$1 dir=$out/$1 size=0
  rm -rf "$dir/kept" && mkdir -p "$dir/kept" "$dir/new"
  fuzz "$target" -set_cover_merge=1 "$dir/kept" "$corpus/$target" "$dir/new" >"$dir/log" 2>&1
  find "$corpus/$target" -type f ! -name 'seed-*' ! -name 'found-*' -delete
  # The small ones first: a kilobyte of a long input mostly says less.
  while read -r bytes file; do
    size=$((size + bytes))
    [ "$size" -le "$most" ] || break
    cp "$file" "$corpus/$target/"
  done < <(find "$dir/kept" -type f -printf '%s %p\n' | sort -n)
  rm -rf "$dir/new"
}

if [ "$mode" = keep ]; then
  for target in "${targets[@]}"; do keep "$target"; done
  du -sb "$corpus"
  exit
fi

export -f run fuzz longest
export corpus out seconds fuzzer
printf '%s\n' "${targets[@]}" | xargs -P "${STOKER_FUZZ_JOBS:-2}" -I{} bash -c 'run {}'

status=0
printf '%-12s %12s %10s %8s %8s %9s\n' target executions per-second edges new findings
for target in "${targets[@]}"; do
  dir=$out/$target
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$dir/log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$dir/log" | tail -n 1)
  new=$(($(find "$dir/new" -type f | wc -l) - $(wc -l <"$dir/before")))
  findings=$(find "$dir/findings" -type f | wc -l)
  printf '%-12s %12s %10s %8s %8s %9s\n' "$target" "${executions:-0}" "${rate:-0}" "${edges:-0}" "$new" "$findings"
  # A fuzzer that ended otherwise than by its time has a finding, or something is wrong with it.
  if [ "$findings" -gt 0 ] || [ "${executions:-0}" -eq 0 ] || ! grep -q '^Done ' "$dir/log"; then
    status=1
    echo "$target: see $dir/log; inputs in $dir/findings"
    tail -n 40 "$dir/log"
  fi
done
exit "$status"
