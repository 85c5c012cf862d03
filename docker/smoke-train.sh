#!/usr/bin/env bash
# The training smoke: the train image, two processes, on a dataset of this machine; then once more from the middle.
# `make smoke-train` calls it when the image is built.
#
# In: $1 a finished dataset, $2 a folder for what comes out. Out: exit 0 when both runs logged the same losses.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$2
[ -f "$1/manifest.json" ] || { echo "smoke-train: no dataset in $1: run \`make smoke\` first" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"
DATASET=$(realpath "$1") OUTPUT=$(realpath "$out")
# The owner of the folder, unless that is root.
RUN_AS=$(id -u):$(id -g)
[ "$(id -u)" != 0 ] || { RUN_AS=65532:65532 && chown 65532:65532 "$out"; }
export DATASET OUTPUT RUN_AS
train() { docker compose -f docker/train.yaml run --rm --no-TTY train; }
losses() { sed 's/, "seconds".*/}/' "$out/log.jsonl"; }
say() { printf 'smoke-train: %s\n' "$*" >&2; }

say "6 steps on two processes"
train
losses >"$out/unbroken.txt"
say "again from the checkpoint of step 3"
rm -r "$out/checkpoints/step_00000006"
train
losses | diff "$out/unbroken.txt" - || { say "the resumed run logged other losses"; exit 1; }
[ "$(wc -l <"$out/unbroken.txt")" = 8 ] || { say "expected 6 steps and 2 evaluations"; exit 1; }
say "the same losses, resumed and unbroken"
