# shellcheck shell=bash
# The manifests against a real API server. Source it after control-plane.sh and control_plane_start.

# FILE: its YAML documents, each into a file of its own in a new directory, which is printed
_documents() {
  local into
  into=$(mktemp -d "$dir/documents.XXXXXX")
  awk -v into="$into" '
    BEGIN { file = sprintf("%s/%03d.yaml", into, ++n) }
    /^---/ { file = sprintf("%s/%03d.yaml", into, ++n); next }
    { print > file }
  ' "$1"
  echo "$into"
}

# DOCUMENT: the API path of its object
_object_path() {
  awk '
    /^apiVersion:/ { group = $2 }
    /^kind:/ { kind = $2 }
    /^metadata:/ { inside = 1; next }
    /^[^ #]/ { inside = 0 }
    inside && /^  name:/ { name = $2 }
    inside && /^  namespace:/ { namespace = $2 }
    END {
      if (group == "" || kind == "" || name == "") exit 1
      # As kubectl puts in its own where a file names none.
      if (namespace == "" && (kind == "Role" || kind == "RoleBinding")) namespace = "default"
      plural = tolower(kind)
      if (plural ~ /y$/) sub(/y$/, "ies", plural); else if (plural !~ /s$/) plural = plural "s"; else plural = plural "es"
      printf "%s", group ~ /\// ? "/apis/" group : "/api/" group
      if (namespace != "") printf "/namespaces/%s", namespace
      printf "/%s/%s\n", plural, name
    }
  ' "$1"
}

# FILE QUERY
_apply() {
  local document path answer
  for document in "$(_documents "$1")"/*.yaml; do
    grep -q '^kind:' "$document" || continue # a comment
    path=$(_object_path "$document") || { echo "$document: no name or kind" && return 1; }
    answer=$(kube_patch "$path?fieldManager=e2e&force=true$2" apply <"$document") || {
      echo "$1: $path: $answer"
      return 1
    }
    echo "$1: $path"
  done
}

# FILE: applies each of its objects
apply_for_real() { _apply "$1" "" >&2 >/dev/null; }

# DIR: has the API server check every object of the manifests as if it were applied
dry_run_all() {
  local file
  while read -r file; do
    # Not API objects but files of kube-scheduler and stoker, which run with them, and templates, which tests/chart.sh renders; and
    # kinds of the Prometheus operator, which is not here: a real Prometheus has those in tests/tests/monitoring.rs.
    case $file in */chart/* | */scheduler/* | */examples/* | */monitoring/*) continue ;; esac
    _apply "$file" '&dryRun=All' || return 1
  done < <(find "$1" -name '*.yaml' | sort)
}
