"""Step 1: is the tokenizer asset the pinned file, and do openai-harmony and tiktoken agree on it?

In: a path, or the usual places; the places of the pipeline. Out: a record of the verified asset and of the checks.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from spanloom.building.parts.work import default_work
from spanloom.building.preflight.checks import Plan, preflight, scratch_here
from spanloom.errors import TokenizerError
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.tiktoken_encoding import first_difference, load_tiktoken, probe_texts
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset
from spanloom.tokenizers.o200k.staging import staged_asset


def verify_tokenizer(asset: Path) -> dict[str, Any]:
    """Verifies the asset's bytes, loads it in openai-harmony and tiktoken, and compares each id and many texts.

    Returns a record of the asset. `proven_by`: package → version; `probe_texts`: the number of texts with the same
    tokens in all these packages. Raises TokenizerError.
    """
    encoding = tokenizer.load_encoding(asset)
    if (difference := first_difference(encoding, load_tiktoken(asset))) is not None:
        raise TokenizerError(
            difference, where=str(asset), remedy="install the pinned openai-harmony and tiktoken (constraints.txt)"
        )
    return {
        "sha256": ASSET_SHA256,
        "vocab_size": tokenizer.VOCAB_SIZE,
        "eod": tokenizer.EOD,
        "proven_by": {package: version(package) for package in ("openai-harmony", "tiktoken")},
        "probe_texts": len(probe_texts()),
    }


def run(
    *,
    tokenizer: str | None = None,
    source: str | None = None,
    raw: str | None = None,
    out: str | None = None,
    work: str | None = None,
    root: str | None = None,
    shards: int | None = None,
    asset: str | None = None,
    report: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs. `asset`: output, a copy of the verified file; `report`: output, the result.

    The other places are those of the pipeline's tasks: `source` and `raw` are read; `out`, `work` and `root` take a
    small file. Raises PreflightError with all that is wrong with them and the asset.
    """
    with scratch_for("verify-tokenizer", [tokenizer, asset, report], scratch) as staging:

        def verified() -> dict[str, Any]:
            path = locate_asset(staged_asset(staging, tokenizer))
            return {"path": staging.stands_for.get(path, str(path)), **verify_tokenizer(path)}

        plan = Plan(
            reads={"source": source, "raw": raw},
            writes={"out": out, "work": work or (default_work(root) if root else None), "root": root},
            source="source",
            shards=shards,
            scratch=scratch_here(),
            own={"tokenizer": verified},
        )
        checks = preflight(plan)
        result = {**checks.pop("tokenizer"), "preflight": checks}
        path = locate_asset(staged_asset(staging, tokenizer))
        staging.create(asset, path.read_bytes())
        staging.replace(report, readable_json(result))
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"tokenizer": {name: result[name] for name in ("sha256", "vocab_size", "eod")}}
