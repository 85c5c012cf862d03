"""Chess, step 3: validates prepared games, and promotes the pending manifest if there are no findings.

In: the root, pending or promoted, and optionally the folders that it was prepared from. Out: the validation's `Report`,
as JSON and as an HTML page; `manifest.json`.
"""

from pathlib import Path

from spanloom.dataset.manifest import PENDING_NAME, promote
from spanloom.dataset.root.places import publish_promoted, staged_root
from spanloom.families.chess import defaults, manifest
from spanloom.families.chess.places import staged_folder
from spanloom.families.chess.report import findings_page
from spanloom.families.chess.verify.games import Checks, validate_root
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri


def run(
    *,
    root: str,
    games: str | None = None,
    thinking: str | None = None,
    deep: int | None = defaults.DEEP,
    legal: bool = defaults.LEGAL,
    tolerance: float = defaults.TOLERANCE,
    report: str | None = None,
    html: str | None = None,
    scratch: Path | None = None,
) -> Report:
    """Runs the step on paths or URIs. A remote root is staged; without findings, `manifest.json` is uploaded last."""
    with scratch_for("validate-chess", [root, games, thinking, report, html], scratch) as staging:
        local_root = staged_root(staging, root, manifest.check)
        checks = Checks(
            games=staged_folder(staging, games),
            thinking=staged_folder(staging, thinking),
            deep=deep,
            legal=legal,
            tolerance=tolerance,
        )
        result = validate_root(local_root, checks)
        if result.clean and (local_root / PENDING_NAME).exists():
            promote(local_root, manifest.check)
        staging.replace(report, readable_json(result.as_dict()))
        if html:
            staging.replace(html, findings_page(local_root, result, root).encode())
        if is_uri(root) and result.clean:
            publish_promoted(parse_uri(root), local_root, {})
    return result


artifact_metadata = report_artifacts
