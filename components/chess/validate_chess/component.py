"""Chess, step 3: are the prepared games what they must be? Only then does manifest.json appear.

In: what is at `dataset_root`, and the folders it was made from, of which some games are made again and compared.
Out: the validation report as JSON and HTML. Findings fail the run. The image carries no python-chess (GPL-3.0): legal
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
