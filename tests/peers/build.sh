#!/usr/bin/env bash
# Builds the real peers of the end-to-end tests from the versions in a go.mod: etcd, kube-apiserver and kube-scheduler, or
# what the go.mod of a folder beside this names.
# The last line on stdout is the directory that holds them. The first build takes minutes, later calls nothing.
#
#   tests/peers/build.sh             the control plane
#   tests/peers/build.sh packaging   crane, which builds and pulls images
#   tests/peers/build.sh karpenter   Karpenter with its KWOK provider
#   tests/peers/build.sh helm        Helm, helm-unittest and helm-docs
#
#   STOKER_E2E_CACHE   where builds are kept (default: ${XDG_CACHE_HOME:-$HOME/.cache}/stoker-e2e)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/${1:-.}"

cache=${STOKER_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-e2e}
flags='-s -w'
# Kubernetes says which version it is only where its build does: without, no chart with a kubeVersion is installed.
kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
[ -z "$kubernetes" ] || flags+=" -X k8s.io/component-base/version.gitVersion=$kubernetes"
# go.sum names every module by content, so its hash changes with each version that go.mod takes.
hash=$({ [ -z "$kubernetes" ] || echo "$flags"; cat go.sum; } | sha256sum)
bin=$cache/${hash:0:16}

if [ ! -d "$bin" ]; then
  if ! command -v go >/dev/null; then
    echo "build.sh: 'go' not found: install Go $(awk '$1 == "go" { print $2 }' go.mod) or newer (https://go.dev/dl)" >&2
    exit 1
  fi
  mkdir -p "$cache"
  # Built beside its final place and renamed when whole: an interrupted build leaves nothing that looks finished.
  work=$(mktemp -d "$cache/.build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "build.sh: building the tools of $PWD/go.mod into $bin (minutes, the first time)" >&2
  # GOWORK: a workspace in a folder above would leave this module out.
  GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags="$flags" -o "$work/" tool >&2
  # Go names a program after the last folder of its import path, which of etcd is no name.
  [ ! -e "$work/server" ] || mv "$work/server" "$work/etcd"
  # Karpenter's kinds, as its module has them.
  if [ -e "$work/kwok" ]; then
    module=$(GOWORK=off go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
    cat "$module"/kwok/charts/crds/karpenter.sh_*.yaml "$module"/kwok/apis/crds/*.yaml >"$work/crds.yaml"
  fi
  chmod 755 "$work"              # mktemp makes it private
  # -T: never into a directory that another build finished meanwhile; that one serves as well.
  mv -T "$work" "$bin" 2>/dev/null || [ -d "$bin" ]
  echo "build.sh: built in $SECONDS s" >&2
fi
echo "$bin"
