#!/usr/bin/env bash
# The compiled pipeline with source and dataset root in an object store, as on a cluster, held against the run over folders
# that `make pipeline-local` has just done.
#
# In: $1 the folder of the environment's programs, $2 the folder of that run. Out: exit 0 when both made the same dataset
# and this one names the URI of its source.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 out=$2
compose() { docker compose --project-name spanloom-pipeline --file docker/compose.yaml "$@"; }
say() { printf 'pipeline-local: %s\n' "$*" >&2; }

down() { compose down --volumes --timeout 1 >/dev/null 2>&1 || true; }
down
trap down EXIT
rm -rf "$out/fetched"

say "the source into the object store"
compose up --detach --no-build --wait object-store >/dev/null 2>&1
export STORAGE_EMULATOR_HOST
STORAGE_EMULATOR_HOST=http://$(compose port object-store 9023)
"$bin/spanloom" convert-synth --raw "$out/raw" --out gs://spanloom/source --dataset "Spanloom sample" --quiet

say "the pipeline over the store"
"$bin/python" -m pipelines.run_local --work "$out/store" --network spanloom-pipeline_default \
  --env STORAGE_EMULATOR_HOST=http://object-store:9023 --env SPANLOOM_SKIP_STORE_PROBE=1 \
  source_uri=gs://spanloom/source dataset_root=gs://spanloom/dataset valid_fraction=0.1

"$bin/spanloom" fetch gs://spanloom/dataset "$out/fetched"
"$bin/spanloom" manifest diff "$out/folders/dataset" "$out/fetched"
for split in train valid; do diff -r "$out/folders/dataset/$split" "$out/fetched/$split"; done
grep -qF '"source": "gs://spanloom/source"' "$out/fetched/manifest.json" || { say "the manifest does not name its source"; exit 1; }
say "the same dataset over folders and over the store"
