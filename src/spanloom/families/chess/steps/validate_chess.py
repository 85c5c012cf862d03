"""Chess, step 3: validates prepared games, and promotes the pending manifest if there are no findings.

In: the root, pending or promoted, and optionally the folders that it was prepared from. Out: the validation's `Report`,
as JSON and as an HTML page; `manifest.json`.
"""

from spanloom.dataset.manifest import PENDING_NAME, promote
from spanloom.dataset.root.places import publish_promoted, staged_root
from spanloom.families.chess import manifest
from spanloom.families.chess.options import ValidatePrepared
from spanloom.families.chess.places import staged_folder
from spanloom.families.chess.report import findings_page
from spanloom.families.chess.verify.games import Checks, validate_root
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.options.keywords import by_keywords
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri


@by_keywords(ValidatePrepared)
def run(given: ValidatePrepared) -> Report:
    """Runs the step on paths or URIs. A remote root is staged; without findings, `manifest.json` is uploaded last."""
    root, report, html = given.root, given.report, given.html
    places = [root, given.games, given.thinking, report, html]
    with scratch_for("validate-chess", places, given.scratch) as staging:
        local_root = staged_root(staging, root, manifest.check)
        checks = Checks(
            games=staged_folder(staging, given.games),
            thinking=staged_folder(staging, given.thinking),
            deep=given.deep,
            legal=given.legal,
            tolerance=given.tolerance,
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
