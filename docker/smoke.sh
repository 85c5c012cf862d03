#!/usr/bin/env bash
# The smoke run: every step in its own image, data through an object store, the result held against a build on this host.
# `make smoke` calls it when the images are built.
#
# In: $1 the `spanloom` of the host, $2 a folder for what comes out; GIT_SHA as the images carry it. Out: exit 0 when
# all datasets validate and equal the host's own, file by file and in the manifest's `content`.
#
# Data is at gs:// of an emulator. The pipeline of raw SYNTH runs over s3:// of SeaweedFS, as its task list says.
set -euo pipefail
cd "$(dirname "$0")/.."
spanloom=$1 out=$2
listed=$out.s3.json
compose() { docker compose -f docker/compose.yaml $([ ! -s "$listed" ] || echo -f "$listed") "$@"; }
say() { printf 'smoke: %s\n' "$*" >&2; }

down() { compose down --volumes --timeout 1 >/dev/null 2>&1 || true; }
down
trap down EXIT
rm -rf "$out"
mkdir -p "$(dirname "$out")"

keys=(AWS_ACCESS_KEY_ID=smoke AWS_SECRET_ACCESS_KEY=of-no-worth AWS_DEFAULT_REGION=us-east-1 SPANLOOM_STORAGE_DEADLINE=300)
"$spanloom" tasks synth_raw_to_kd --shards 2 --work s3://spanloom/tasks --registry "$REGISTRY" \
  raw_uri=s3://spanloom/raw source_uri=s3://spanloom/source dataset_root=s3://spanloom/dataset \
  dataset_name="Spanloom sample" valid_fraction=0.1 |
  python3 docker/compose_of_list.py --prefix s3 --env AWS_ENDPOINT_URL=http://seaweedfs:8333 "${keys[@]/#/--env=}" >"$listed"

say "putting samples into the object stores"
compose up --detach --no-build --wait object-store seaweedfs >"$out.log" 2>&1 || { cat "$out.log"; exit 1; }
export STORAGE_EMULATOR_HOST AWS_ENDPOINT_URL "${keys[@]}"
STORAGE_EMULATOR_HOST=http://$(compose port object-store 9023)
AWS_ENDPOINT_URL=http://$(compose port seaweedfs 8333)
"$spanloom" sample --out s3://spanloom/raw
export SPANLOOM_SKIP_STORE_PROBE=1 # the emulator of gs:// ignores ifGenerationMatch
"$spanloom" chess sample --out gs://spanloom/chess --games 12 --thinking 12

say "running the steps in their containers"
# Up starts each service when those before it have ended well, and fails when one has not.
validated() { [ "$(docker wait "$(compose ps --all --quiet "$1")")" = 0 ]; }
last=(
  assemble-validation validate-alignment-chat validate-chess validate-traces validate-alignment-traces
  validate-alignment-harmful validate-alignment-retain validate-alignment-models
)
run_to() { compose up --detach --no-build "$@" >"$out.log" 2>&1 && for service in "$@"; do validated "$service" || return 1; done; }
# One store after the other: the emulator mixes up objects that several containers create at once on a machine with much to do.
if ! run_to "${last[@]}" || ! run_to s3-assemble-validation; then
  failed=$(compose ps --all --format '{{.Service}} {{.ExitCode}}' | awk '$2 != 0 {print $1}')
  [ -n "$failed" ] || tail -n 20 "$out.log"
  for service in $failed; do
    compose logs --no-log-prefix --no-color "$service"
    say "$service failed; its output is above"
  done
  exit 1
fi

say "fetching the datasets"
"$spanloom" fetch gs://spanloom/dataset "$out/dataset"
"$spanloom" fetch s3://spanloom/dataset "$out/s3/dataset"
"$spanloom" fetch gs://spanloom/packed "$out/packed"
"$spanloom" fetch gs://spanloom/chess/prepared "$out/prepared"
"$spanloom" fetch gs://spanloom/traces/tokens "$out/tokens"
"$spanloom" fetch gs://spanloom/models/root "$out/models/root"
for split in harmful retain; do "$spanloom" fetch "gs://spanloom/toolcalls/roots/$split" "$out/calls/$split"; done
mkdir -p "$out/exported"
for file in manifest.json trace.jsonl tunix_sft.jsonl training_example.jsonl; do
  curl --fail --silent --show-error --output "$out/exported/$file" \
    "$STORAGE_EMULATOR_HOST/storage/v1/b/spanloom/o/run%2Ftraces%2F$file?alt=media"
done

say "building the same on the host"
"$spanloom" sample --out "$out/raw"
"$spanloom" convert-synth --raw "$out/raw" --out "$out/source" --dataset "Spanloom sample" --quiet
SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" build --source "$out/source" --out "$out/built" --valid-fraction 0.1 --quiet
"$spanloom" convert-synth --raw "$out/raw" --out "$out/s3/source" --shards 2 --assignment contiguous \
  --dataset "Spanloom sample" --quiet
SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" build --source "$out/s3/source" --shards 2 --out "$out/s3/built" --valid-fraction 0.1 --quiet

"$spanloom" chat sample --out "$out/chat/conversations.jsonl"
"$spanloom" chat generate --input "$out/chat/conversations.jsonl" --out "$out/chat/transcripts.parquet" \
  --context-len 256 --drop tool --quiet
SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" chat pack --input "$out/chat/transcripts.parquet" --out "$out/chat/packed" \
  --block-size 256 --post-training --shards 2 --quiet

SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" chess prepare --source gs://spanloom/chess/games \
  --thinking gs://spanloom/chess/thinking --out "$out/chess" --valid-fraction 0.2 --quiet

"$spanloom" traces sample --out "$out/traces/sample.jsonl" --tokenizer "$out/traces/tokenizer.json"
traces() { "$spanloom" traces --root "$out/traces" "$@"; }
traces ingest "$out/traces/sample.jsonl" --source-name smoke --created-at 2026-01-01T00:00:00Z --quiet
traces build --name smoke --version v1 --limit 40 --strategy random --seed 7 --reproducible
for format in trace tunix_sft training_example; do
  traces export smoke-v1 --format "$format" --out "$out/traces/$format.jsonl" --quiet
  cmp "$out/traces/$format.jsonl" "$out/exported/$format.jsonl"
done
cmp "$out/traces/datasets/smoke-v1/manifest.json" "$out/exported/manifest.json"
SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" traces --root "$out/traces" tokenize smoke-v1 \
  --tokenizer "$out/traces/tokenizer.json" --out "$out/traces/tokens" --valid-fraction 0.2 --quiet

calls=$out/toolcalls
toolcalls() { SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" toolcalls "$@" >>"$out.log"; }
toolcalls demo --out "$calls/in"
convert() { toolcalls convert --from "$1" --input "$calls/in/$2" --out "$calls/samples" --system "You have tools." "${@:3}"; }
convert b4 b4.jsonl --completions "$calls/in/completions.jsonl"
convert agentdojo agentdojo.jsonl
convert tau2 tau2
convert ultrachat ultrachat.jsonl
convert xstest xstest.csv --completions "$calls/in/completions.jsonl"
toolcalls merge --harmful-dir "$calls/samples/harmful" --retain-dir "$calls/samples/retain" --output "$calls/train.jsonl"
toolcalls tokenize --data "$calls/train.jsonl" --template "$calls/in/chat_template.jinja" \
  --tokenizer "$calls/in/tokenizer.json" --out "$calls/roots" --valid-fraction 0.2 --quiet

"$spanloom" model sample --out "$out/models/in" >/dev/null
"$spanloom" convert "$out/models/in/chat.jsonl" --out "$out/models/source" --yes --quiet >/dev/null
SPANLOOM_GIT_SHA=$GIT_SHA "$spanloom" build --source gs://spanloom/models/source --model gs://spanloom/models/in/model \
  --out "$out/models/built" --valid-fraction 0.2 --quiet

"$spanloom" validate "$out/dataset" --source "$out/source" --quiet
"$spanloom" manifest diff "$out/built" "$out/dataset"
for split in train valid; do diff -r "$out/built/$split" "$out/dataset/$split"; done
"$spanloom" manifest diff "$out/s3/built" "$out/s3/dataset"
for split in train valid; do diff -r "$out/s3/built/$split" "$out/s3/dataset/$split"; done
# The places of source and tokenizer are recorded beside their hashes, and are not compared.
recorded() { grep -qF "\"$2\": \"$3\"" "$out/$1/manifest.json" || { say "$1 does not say that its $2 was $3"; exit 1; }; }
recorded dataset source gs://spanloom/source
recorded s3/dataset source s3://spanloom/source
recorded dataset tokenizer gs://spanloom/run/tokenizer
recorded packed source gs://spanloom/chat/transcripts.parquet
recorded packed tokenizer /opt/tokenizer/o200k_base.tiktoken
"$spanloom" validate "$out/packed" --source "$out/chat/transcripts.parquet" --quiet
"$spanloom" manifest diff "$out/chat/packed" "$out/packed"
diff -r "$out/chat/packed/train" "$out/packed/train"
"$spanloom" validate "$out/prepared"
"$spanloom" manifest diff "$out/chess" "$out/prepared"
for split in train valid; do diff -r "$out/chess/$split" "$out/prepared/$split"; done
"$spanloom" validate "$out/tokens" --source "$out/exported/tunix_sft.jsonl" --quiet
"$spanloom" manifest diff "$out/traces/tokens" "$out/tokens"
for split in train valid; do diff -r "$out/traces/tokens/$split" "$out/tokens/$split"; done
for root in harmful retain; do
  "$spanloom" validate "$out/calls/$root" --source "$calls/train.jsonl" --quiet
  "$spanloom" manifest diff "$calls/roots/$root" "$out/calls/$root"
  for split in train valid; do diff -r "$calls/roots/$root/$split" "$out/calls/$root/$split"; done
done
"$spanloom" validate "$out/models/root" --source "$out/models/source" --quiet
"$spanloom" manifest diff "$out/models/built" "$out/models/root"
for folder in train valid model; do diff -r "$out/models/built/$folder" "$out/models/root/$folder"; done
made=("$out/dataset" "$out/s3/dataset" "$out/packed" "$out/prepared" "$out/tokens" "$out/calls" "$out/exported" "$out/models/root")
say "containers and host made the same $(find "${made[@]}" -type f | wc -l) files"
