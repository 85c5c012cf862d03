# All images: `make images`. Every variable can be set in the environment.
#
#   REGISTRY   where the images are named to live; the compiled pipeline names the same
#   VERSION    their tag: the version of the package, never a tag that moves
#   BASE_IMAGE what the images are built on: with its digest (`make base-image` prints it), or an image of this machine
#   CUDA_BASE  an image with a torch for CUDA, for the target train-cuda (`make train-cuda`); in no group
#   MEGATRON   another megatron-core than that of constraints.txt, such as 0.19.2, with BASE_IMAGE=python:3.12-slim
#   GIT_SHA    what the manifest records; `make images` reads it off the checkout

variable "REGISTRY" { default = "ghcr.io/spanloom" }
variable "VERSION" { default = "0.1.0" }
variable "GIT_SHA" { default = "unknown" }
variable "BASE_IMAGE" { default = "python:3.11-slim" }
variable "CUDA_BASE" { default = "scratch" }
variable "MEGATRON" { default = "" }
variable "TORCH_INDEX" { default = "https://download.pytorch.org/whl/cpu" }
# A pip.conf with a mirror and its credentials: mounted while pip runs, kept by no layer.
variable "PIP_CONF" { default = "" }

group "default" {
  targets = ["step", "train", "traces-api"]
}

group "smoke" {
  targets = ["step", "object-store"]
}

# Where an image lives, by the name of its target.
function "named" {
  params = [image]
  result = "${REGISTRY}/spanloom-${image}:${VERSION}"
}

target "_all" {
  dockerfile = "docker/Dockerfile"
  context    = "."
  secret     = PIP_CONF == "" ? [] : ["id=pip.conf,src=${PIP_CONF}"]
  args = {
    BASE_IMAGE  = BASE_IMAGE
    TORCH_INDEX = TORCH_INDEX
    MEGATRON    = MEGATRON
    GIT_SHA     = GIT_SHA
    VERSION     = VERSION
  }
}

# The image of each step, over a base of the Dockerfile.
target "step" {
  inherits = ["_all"]
  name     = row.step
  matrix = {
    row = [
      { step = "convert-shard", base = "data" },
      { step = "assemble-source", base = "data" },
      { step = "verify-tokenizer", base = "data-tokenizer" },
      { step = "render-shard", base = "data-tokenizer" },
      { step = "assemble-split", base = "data" },
      { step = "write-indexed", base = "data" },
      { step = "assemble-manifest", base = "data" },
      { step = "assemble-dataset", base = "data" },
      { step = "validate-alignment", base = "megatron-tokenizer" },
      { step = "validate-shard", base = "megatron-tokenizer" },
      { step = "assemble-validation", base = "megatron" },
      { step = "generate-chat", base = "data-tokenizer" },
      { step = "pack-chat", base = "data-tokenizer" },
      { step = "prepare-chess", base = "data" },
      { step = "assemble-chess", base = "data" },
      { step = "validate-chess", base = "data" },
      { step = "ingest-traces", base = "data" },
      { step = "build-traces", base = "data" },
      { step = "export-traces", base = "data" },
      { step = "validate-traces", base = "data" },
      { step = "tokenize-traces", base = "data" },
      { step = "convert-toolcalls", base = "data" },
      { step = "validate-toolcalls", base = "data" },
      { step = "merge-toolcalls", base = "data" },
      { step = "audit-toolcalls", base = "data" },
      { step = "tokenize-toolcalls", base = "data" },
      { step = "tokenize-conversations", base = "data" },
      { step = "score-teacher", base = "train-tokenizer" },
      { step = "validate-teacher", base = "megatron" },
      { step = "join-teacher", base = "data" },
    ]
  }
  target = "image"
  tags   = [named(row.step)]
  args   = { BASE = row.base, TITLE = "spanloom-${row.step}", IMAGE = named(row.step) }
}

# The HTTP service of the traces family.
target "traces-api" {
  inherits = ["_all"]
  target   = "image"
  tags     = [named("traces-api")]
  args     = { BASE = "service", TITLE = "spanloom-traces-api", IMAGE = named("traces-api") }
}

target "train" {
  inherits = ["_all"]
  target   = "image"
  tags     = [named("train")]
  args     = { BASE = "train", TITLE = "spanloom-train", IMAGE = named("train") }
}

# `train` over a base that brings torch for CUDA. The tag differs, since the wheel of torch does.
target "train-cuda" {
  inherits = ["_all"]
  target   = "image"
  tags     = ["${REGISTRY}/spanloom-train:${VERSION}-cuda"]
  args = {
    BASE       = "train-cuda"
    CUDA_BASE  = CUDA_BASE
    TITLE      = "spanloom-train"
    IMAGE      = "${REGISTRY}/spanloom-train:${VERSION}-cuda"
  }
}

# The SBOM of each base as a file.
target "sbom" {
  inherits = ["_all"]
  target   = "sbom"
  output   = ["type=local,dest=dist/sbom"]
}

target "object-store" {
  inherits = ["_all"]
  target   = "object-store"
  tags     = ["spanloom-object-store:${VERSION}"]
}
