#!/usr/bin/env bash
# Builds the images of stoker and stoker-probe on an empty base, without Docker and without a network of their own, and
# tries them: pushed to a registry on loopback, pulled, unpacked and run without a network. Ends with a line for each.
#
#   manifests/images/build.sh [OPTION...]
#     --to REGISTRY     push there too, such as registry.example.com/team (log in first: crane auth login)
#     --tag TAG         their tag (default: the workspace's version)
#     --programs DIR    take the programs from this folder (default: build them, profile `dist`)
#     --revision REV    label org.opencontainers.image.revision (default: the commit)
#
# Needs Rust, Go for the first build of crane, curl, tar, strip, unshare and chroot: a Debian with its build-essential.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

to='' programs=''
tag=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
while [ $# -gt 0 ]; do
  case $1 in
  --to) to=$2 ;;
  --tag) tag=$2 ;;
  --programs) programs=$2 ;;
  --revision) revision=$2 ;;
  *) echo "build.sh: unknown option $1; see the top of $0" >&2 && exit 2 ;;
  esac
  shift 2
done

# Who runs in the image: nobody that a node knows. The manifests name the same.
USER_ID=65532
# Most that an image may have, in bytes, compressed. Programs of another profile than `dist`, such as CI's, are a third larger.
MOST=30000000

dir=$(mktemp -d)
registry=''
finish() {
  [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

crane=$(tests/peers/build.sh packaging | tail -n 1)/crane
# What it tells of its steps is of interest where one fails.
crane() { "$crane" "$@" 2>"$dir/crane.log" || { cat "$dir/crane.log" >&2 && return 1; }; }
if [ -n "$programs" ]; then
  MOST=40000000
else
  cargo build --quiet --locked --profile dist --package stoker --package stoker-probe
  programs=${CARGO_TARGET_DIR:-target}/dist
fi

# PACKAGE: the crates that are in its program, as CycloneDX reads it.
components() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p')
  cargo tree --locked --quiet --package "$1" --edges normal,no-proc-macro --target "$host" --prefix none --format '{p}|{l}' |
    sed 's/ (.*)|/|/' | sort -u | awk -F'[ |]' '
    BEGIN { printf "{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,\"components\":[" }
    {
      name = $1; version = substr($2, 2); license = $0; sub(/^[^|]*\|/, "", license)
      # Some write their choice of licences with a slash.
      gsub(/\//, " OR ", license)
      printf "%s\n{\"type\":\"library\",\"name\":\"%s\",\"version\":\"%s\",\"purl\":\"pkg:cargo/%s@%s\"", n++ ? "," : "", name, version, name, version
      if (license != "") printf ",\"licenses\":[{\"expression\":\"%s\"}]", license
      printf "}"
    }
    END { print "\n]}" }'
}

# PROGRAM ROOT: all that the program needs, and nothing else.
fill() {
  local program=$1 root=$2 file
  mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/usr/share/sbom"
  strip --strip-all -o "$root/usr/local/bin/$program" "$programs/$program"
  # The loader and the few libraries of glibc, where the program looks for them.
  ldd "$programs/$program" | grep -o '/[^ ]*' | while read -r file; do
    install -D -m 755 "$(realpath "$file")" "$root$file"
  done
  # For HTTPS to a Prometheus whose authority the operator does not name.
  if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
    install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  fi
  echo "nonroot:x:$USER_ID:$USER_ID::/:/" >"$root/etc/passwd"
  components "$program" >"$root/usr/share/sbom/$program.cdx.json"
  install -m 644 LICENSE "$root/usr/share/sbom/LICENSE"
  chmod -R u=rwX,go=rX "$root"
}

# PROGRAM ROOT NAME: makes an image of the folder and pushes it under that name. Nothing in it depends on when or by whom.
pack() {
  local program=$1 root=$2 name=$3
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$root" -cf - . |
    gzip -9 -n >"$dir/layer.tar.gz"
  crane append --insecure --oci-empty-base --new_layer "$dir/layer.tar.gz" --new_tag "$name" >/dev/null
  crane mutate --insecure "$name" --tag "$name" --set-platform linux/"$arch" --user "$USER_ID:$USER_ID" --workdir / \
    --entrypoint "/usr/local/bin/$program" --env PATH=/usr/local/bin \
    --label "org.opencontainers.image.title=$program" \
    --label "org.opencontainers.image.version=$tag" \
    --label "org.opencontainers.image.revision=$revision" \
    --label "org.opencontainers.image.licenses=Apache-2.0" \
    --label "org.opencontainers.image.description=Supplies GPU nodes to Kubernetes clusters" >/dev/null
  crane digest --insecure "$name"
}

# ROOT COMMAND...: runs it in that root without a network, as the image's user where that is allowed.
run() {
  local root=$1
  shift
  if [ "$(id -u)" -eq 0 ]; then
    unshare --net chroot --userspec="$USER_ID:$USER_ID" "$root" "$@"
  else
    unshare --map-root-user --net chroot "$root" "$@"
  fi
}

case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) echo "build.sh: no image for $(uname -m)" >&2 && exit 1 ;;
esac
"$crane" registry serve --address 127.0.0.1:0 >"$dir/registry.log" 2>&1 &
registry=$!
for _ in $(seq 100); do
  port=$(grep -o '127.0.0.1:[0-9]*\|\[::\]:[0-9]*\|port [0-9]*' "$dir/registry.log" | grep -o '[0-9]*$' | head -n 1 || true)
  [ -n "$port" ] && curl --noproxy '*' -sf "http://127.0.0.1:$port/v2/" >/dev/null && break
  sleep 0.1
done

for program in stoker stoker-probe; do
  name=127.0.0.1:$port/$program:$tag
  fill "$program" "$dir/$program"
  digest=$(pack "$program" "$dir/$program" "$name")
  rm -rf "${dir:?}/$program"
  fill "$program" "$dir/$program"
  again=$(pack "$program" "$dir/$program" "$name-again")
  [ "$digest" = "$again" ] || { echo "$program: two builds gave $digest and $again" >&2; exit 1; }

  crane validate --insecure --remote "$name" >/dev/null
  crane config --insecure "$name" | grep -q "\"User\":\"$USER_ID:$USER_ID\"" || { echo "$program: runs as root" >&2; exit 1; }
  size=$(crane manifest --insecure "$name" | grep -o '"size":[0-9]*' | awk -F: '{ sum += $2 } END { print sum }')
  [ "$size" -le "$MOST" ] || { echo "$program: $size bytes, more than $MOST" >&2; exit 1; }

  mkdir "$dir/pulled"
  crane export --insecure "$name" - | tar -x -C "$dir/pulled"
  said=$(run "$dir/pulled" "/usr/local/bin/$program" --version)
  [ "$said" = "$program $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)" ] || { echo "$program: says $said" >&2; exit 1; }
  if [ "$program" = stoker ]; then
    run "$dir/pulled" /usr/local/bin/stoker policy show >/dev/null
    run "$dir/pulled" /usr/local/bin/stoker offers --limit 1 >/dev/null
  fi
  grep -c '"purl"' "$dir/pulled/usr/share/sbom/$program.cdx.json" >"$dir/crates"
  rm -rf "$dir/pulled"
  [ -z "$to" ] || crane copy --insecure "$name" "$to/$program:$tag" >/dev/null
  printf '%-13s %s  %5.1f MB  %s crates  runs without a network\n' "$program" "$digest" "$(awk "BEGIN { print $size / 1e6 }")" "$(cat "$dir/crates")"
done
