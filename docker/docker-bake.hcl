# All images: `make images`. Every variable can be set in the environment.
#
#   REGISTRY   where the images are named to live; the compiled pipeline names the same
#   VERSION    their tag: the version of the package, never a tag that moves
#   GIT_SHA    what the manifest records; `make images` reads it off the checkout

variable "REGISTRY" { default = "ghcr.io/spanloom" }
variable "VERSION" { default = "0.1.0" }
variable "GIT_SHA" { default = "unknown" }
variable "BASE_IMAGE" { default = "python:3.11-slim" }
variable "TORCH_INDEX" { default = "https://download.pytorch.org/whl/cpu" }
# A pip.conf with a mirror and its credentials: mounted while pip runs, kept by no layer.
variable "PIP_CONF" { default = "" }

group "default" {
  targets = ["step", "train"]
}

group "smoke" {
  targets = ["step", "object-store"]
}

target "_all" {
  dockerfile = "docker/Dockerfile"
  context    = "."
  secret     = PIP_CONF == "" ? [] : ["id=pip.conf,src=${PIP_CONF}"]
  args = {
    BASE_IMAGE  = BASE_IMAGE
    TORCH_INDEX = TORCH_INDEX
    GIT_SHA     = GIT_SHA
    VERSION     = VERSION
  }
}

target "step" {
  inherits = ["_all"]
  name     = step
  matrix = {
    step = [
      "convert-synth",
      "verify-tokenizer",
      "render-shard",
      "assemble-split",
      "write-indexed",
      "assemble-manifest",
      "validate-alignment",
      "generate-chat",
      "pack-chat",
    ]
  }
  target = step
  tags   = ["${REGISTRY}/spanloom-${step}:${VERSION}"]
  args   = { IMAGE = "${REGISTRY}/spanloom-${step}:${VERSION}" }
}

target "train" {
  inherits = ["_all"]
  target   = "train"
  tags     = ["${REGISTRY}/spanloom-train:${VERSION}"]
  args     = { IMAGE = "${REGISTRY}/spanloom-train:${VERSION}" }
}

target "object-store" {
  inherits = ["_all"]
  target   = "object-store"
  tags     = ["spanloom-object-store:${VERSION}"]
}
