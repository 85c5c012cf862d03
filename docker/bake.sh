#!/usr/bin/env bash
# The targets of docker-bake.hcl that are named, or its default: all at once, or with SERIAL=1 one after another, for an
# engine whose BuildKit does not bear builds at once (Docker 20.10 panics: "failed to get edge").
set -euo pipefail
bake=(docker buildx bake -f "$(dirname "$0")/docker-bake.hcl")
if [ -z "${SERIAL:-}" ]; then exec "${bake[@]}" "$@"; fi
targets=$("${bake[@]}" --print "$@" | python3 -c 'import json, sys; print(*json.load(sys.stdin)["target"])')
for target in $targets; do "${bake[@]}" "$target"; done
