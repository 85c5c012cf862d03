"""Chess, step 3: validates the prepared games. Only then is manifest.json written.

In: the files at `dataset_root`, and their source folders, of which some games are prepared again and compared.
Out: the validation report as JSON and HTML. Findings fail the run. The image has no python-chess (GPL-3.0): legal
moves are checked by `spanloom chess validate --legal` on a machine that has `spanloom[chess]`.
"""

from kfp import dsl

IMAGE = "ghcr.io/spanloom/spanloom-validate-chess:0.1.0"


@dsl.container_component
def validate_chess(
    dataset: dsl.Input[dsl.Dataset],
    dataset_root: str,
    games_uri: str,
    thinking_uri: str,
    deep: int,
    tolerance: float,
    report: dsl.Output[dsl.Artifact],
    html: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    """Validates the prepared games and promotes their manifest; `dataset` orders it after assemble-chess."""
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["spanloom", "step", "validate-chess"],
        args=[
            *("--root", dataset_root),
            *("--games", games_uri),
            *("--thinking", thinking_uri),
            *("--deep", deep),
            *("--tolerance", tolerance),
            *("--report", report.path),
            *("--html", html.path),
            *("--executor-input", "{{$}}"),
        ],
    )
