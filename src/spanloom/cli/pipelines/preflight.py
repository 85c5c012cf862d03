"""`spanloom preflight`: what would fail the tasks of a pipeline, before they start."""

from functools import partial
from types import ModuleType
from typing import Annotated, Any

from spanloom.cli.app import PIPELINE, app, print_json
from spanloom.cli.pipelines.tasks import Parameters, Pipeline, list_of
from spanloom.families.models.defaults import MODEL_FILES
from spanloom.families.models.places import local_model
from spanloom.options.option import option
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for
from spanloom.tasks.listed import declared_parameters
from spanloom.tasks.stage import parameters_of, scratch_bytes
from spanloom.tokenizers.json_file import load_json_tokenizer
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset, verify_asset
from spanloom.tokenizers.o200k.staging import staged_asset


@app.command(rich_help_panel=PIPELINE)
def preflight(
    *,
    pipeline: Pipeline,
    parameters: Parameters = None,
    shards: Annotated[
        int | None,
        option("Tasks of each stage that is run once a shard, as `tasks` and `make compile` take it.", min=1),
    ] = None,
    scratch: Annotated[
        str | None,
        option("Scratch space of a task, such as 200Gi. Default: $SPANLOOM_SCRATCH_SIZE, else what is free here."),
    ] = None,
) -> None:
    """Check what the tasks of a pipeline need, before they start; a store has 25 seconds to answer.

    Inputs are read, of a source all shards; outputs take a small file, create-only, and it is removed; scratch space is
    compared with an estimate; the tokenizer or the model loads. All faults are printed at once. The first task of the
    Harmony pipelines runs the same. Run it where the tasks run: with their credentials and mounts.

    Example: `spanloom preflight synth_kd source_uri=gs://bucket/synth_harmony dataset_root=gs://bucket/synth_kd_v1`
    """
    from spanloom.building.parts.work import default_work
    from spanloom.building.preflight.checks import Plan, scratch_here
    from spanloom.building.preflight.checks import preflight as run_checks

    listed = list_of(pipeline, shards)
    values = parameters_of(parameters or [], declared_parameters(listed))
    writes = {name: values[name] for name in listed.WRITES}
    if "work_uri" in writes and not writes["work_uri"]:
        root = next(values[name] for name in listed.WRITES if name.endswith("_root"))
        writes["work_uri"] = default_work(root) if root else ""
    plan = Plan(
        reads={name: values[name] for name in listed.READS},
        writes=writes,
        source=getattr(listed, "SOURCE", None),
        shards=shards or getattr(listed, "SHARDS", None),
        scratch=scratch_bytes(scratch) if scratch else scratch_here(),
        own=_own_checks(listed, values),
    )
    print_json({"pipeline": pipeline, **run_checks(plan)})


def _own_checks(listed: ModuleType, values: dict[str, str]) -> dict[str, Any]:
    """The checks of the tokenizer or the model, by name."""
    if any(task["step"] == "verify-tokenizer" for task in listed.TASKS):
        return {"tokenizer": partial(_asset, values["tokenizer_uri"])}
    if "model_uri" in values:
        return {"model": partial(_model, values["model_uri"])}
    if values.get("tokenizer_uri", "").endswith(".json"):
        return {"tokenizer": partial(_tokenizer, values["tokenizer_uri"])}
    return {}


def _asset(place: str) -> dict[str, str] | None:
    """The asset, if a place names it or this machine has it; else the tasks use the asset of their image."""

    with scratch_for("preflight", [place]) as staging:
        path = locate_asset(staged_asset(staging, place))
        if not place and not path.is_file():
            return None
        verify_asset(path)
    return {"sha256": ASSET_SHA256}


def _model(place: str) -> dict[str, Any]:
    from spanloom.families.models.model import load_model

    with local_model(place) as folder:
        load_model(folder)
        return {name: sha256_file(folder / name) for name in MODEL_FILES if (folder / name).is_file()}


def _tokenizer(place: str) -> dict[str, str]:

    with scratch_for("preflight", [place]) as staging:
        path = staging.file(place)
        load_json_tokenizer(path, extra="chat")
        return {"sha256": sha256_file(path)}
