# Images beside those of `make images`, pipelines in their images, releases and locks.

# The images that `make reproducible` builds twice: every layer of every image is a layer of one of these.
REPRODUCIBLE ?= render-shard validate-alignment traces-api train
# What `make train-cuda` builds on: an image with a torch for CUDA.
CUDA_BASE ?=
# One pipeline of `make pipelines-local`, such as model_chat_shards
ONLY ?=

.PHONY: base-image sbom reproducible smoke-train train-cuda pipeline-local pipelines-local push locks dist

base-image: ## BASE_IMAGE by the digest that its registry has now: export BASE_IMAGE="$(make base-image)"
	@digest=$$(docker buildx imagetools inspect "$(BASE_IMAGE)" --format '{{json .Manifest.Digest}}') && \
	echo "$(BASE_IMAGE)@$$digest" | tr -d '"'

sbom: $(ASSET) ## What is in the images, as CycloneDX: dist/sbom/BASE.cdx.json, the files that the images carry too
	@rm -rf dist/sbom
	@$(bake) sbom

reproducible: setup ## Two builds of the commit without a cache, minutes each: the layers of the images must be the same
	export TORCH_INDEX=$$($(probe_torch) && echo "$(TORCH_INDEX)"); \
	SPANLOOM_REPRODUCIBLE="$(REPRODUCIBLE)" SPANLOOM_REQUIRE_DOCKER=1 $(BIN)/python -m pytest tests/containers/reproducible.py

smoke-train: $(ASSET) ## The training image on the dataset that `make smoke` left: two processes, a resume
	@$(bake) train
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) docker/smoke-train.sh data/smoke/dataset data/smoke-train

train-cuda: ## The training image over a base with torch for CUDA: make train-cuda CUDA_BASE=nvcr.io/nvidia/pytorch:…
	@test -n "$(CUDA_BASE)" || { echo 'name the base: make train-cuda CUDA_BASE=IMAGE, with Python 3.11 or 3.12 and torch'; exit 2; }
	@export CUDA_BASE=$(CUDA_BASE); $(bake) train-cuda

pipeline-local: $(ASSET) ## The compiled Kubeflow pipeline on this machine, each task in its image: over folders, over an object store
	@$(bake) smoke
	@rm -rf data/pipeline-local/raw data/pipeline-local/source
	$(BIN)/spanloom sample --out data/pipeline-local/raw
	$(BIN)/spanloom convert-synth --raw data/pipeline-local/raw --out data/pipeline-local/source --dataset "Spanloom sample"
	$(BIN)/python -m pipelines.run_local --source data/pipeline-local/source --work data/pipeline-local/folders valid_fraction=0.1
	@VERSION=$(VERSION) docker/pipeline-store.sh $(abspath $(BIN)) $(CURDIR)/data/pipeline-local

pipelines-local: $(ASSET) ## All pipelines but SYNTH's in their images, held against one process; ONLY=harmony_chat for one
	@$(bake) step
	SPANLOOM_NIGHTLY=1 SPANLOOM_REQUIRE_DOCKER=1 $(BIN)/python -m pytest tests/containers/test_pipeline_local.py \
	  -k "another_committed$(if $(ONLY), and $(ONLY))" --durations=0

push: ## Push the images that `make images REGISTRY=…` built, and write their digests to dist/images.json
	@REGISTRY=$(REGISTRY) VERSION=$(VERSION) docker/push.sh dist/images.json

locks: setup ## The hashes of all packages that images and CI install, from constraints.txt and pyproject.toml
	$(PIP) install $(QUIET) -c constraints.txt uv
	$(BIN)/python locks/compile.py --megatron $(NEXT_MEGATRON)

dist: setup ## Wheel and source distribution with their git SHA, in dist/, by the pinned hatchling
	$(BIN)/hatchling build --directory dist
