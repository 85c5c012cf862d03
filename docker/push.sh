#!/usr/bin/env bash
# Pushes the images of $REGISTRY at $VERSION and writes to $1 which digest stands for each name in the committed YAML.
set -euo pipefail
lock=$1
committed=ghcr.io/spanloom
images=$(docker buildx bake --progress quiet --file "$(dirname "$0")/docker-bake.hcl" --print |
  python3 -c 'import json, sys; print(*json.load(sys.stdin)["target"])')
mkdir -p "$(dirname "$lock")"
entries=()
for image in $images; do
  name=spanloom-$image
  docker push --quiet "$REGISTRY/$name:$VERSION" >&2
  digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$REGISTRY/$name:$VERSION" |
    grep -F "$REGISTRY/$name@" | head -n 1)
  entries+=("$(printf '  "%s/%s:%s": "%s"' "$committed" "$name" "$VERSION" "$digest")")
done
{ echo '{'; printf '%s,\n' "${entries[@]::${#entries[@]}-1}"; printf '%s\n' "${entries[-1]}"; echo '}'; } >"$lock.part"
mv "$lock.part" "$lock"
cat "$lock"
