"""The YAML that Tunix takes for a run on an exported dataset.

In: a dataset's key and settings of the run. Out: the YAML, key for key as tunix-rt writes it.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator

from spanloom.families.traces.trace import check_json


class TrainingRequest(BaseModel):
    """A run of supervised fine-tuning."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    dataset_key: Annotated[str, Field(min_length=1, max_length=256)]
    model_id: Annotated[str, Field(min_length=1, max_length=256)]
    output_dir: Annotated[str, Field(min_length=1, max_length=512)]
    learning_rate: Annotated[float, Field(gt=0, le=1.0)] = 2e-5
    weight_decay: Annotated[float, Field(ge=0, le=1.0)] = 0.01
    num_epochs: Annotated[int, Field(ge=1, le=100)] = 3
    batch_size: Annotated[int, Field(ge=1, le=512)] = 8
    max_seq_length: Annotated[int, Field(ge=128, le=32_768)] = 2048
    device: Literal["cpu", "cuda", "auto"] = "auto"

    @field_validator("dataset_key", "model_id", "output_dir")
    @classmethod
    def _text(cls, value: str) -> str:
        check_json(value)
        return value


def training_manifest(request: TrainingRequest) -> dict[str, Any]:
    """The answer with the YAML in it."""
    manifest = {
        "version": "1.0",
        "runner": "tunix",
        "mode": "sft",
        "model": {"model_id": request.model_id},
        "dataset": {"format": "tunix_sft", "path": f"./datasets/{request.dataset_key}.jsonl"},
        "training": request.model_dump(exclude={"dataset_key", "model_id", "output_dir"}),
        "output": {"output_dir": request.output_dir},
    }
    return {
        "manifest_yaml": yaml.dump(manifest, default_flow_style=False, sort_keys=False, allow_unicode=True),
        "dataset_key": request.dataset_key,
        "model_id": request.model_id,
        "format": "tunix_sft",
        "message": f"Manifest generated for dataset {request.dataset_key}. Save as YAML and execute with Tunix CLI.",
    }
