"""The page: results as JSON → the tables of docs/performance.md, and the plot.

`python -m tools.bench.page JSON` prints the tables as Markdown and draws the plot beside the JSON. With `--page FILE`
it writes each table between its marks (`<!-- bench:routes -->` … `<!-- /bench -->`) and the plot into images/.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from tools.bench import bars, tables
from tools.bench.speed import PLAIN

PLOT_NAME = "performance.svg"
_PLACE = re.compile(r"<!-- bench:(\w+) -->\n.*?<!-- /bench -->", re.DOTALL)


def fill(page: str, sheets: dict[str, str]) -> str:
    """Puts each sheet (key → Markdown) between its marks. Raises KeyError for a mark without a sheet."""
    return _PLACE.sub(lambda found: f"<!-- bench:{found[1]} -->\n{sheets[found[1]]}\n<!-- /bench -->", page)


def plotted(results: dict[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Groups of (name, tokens a second): routes with their peers; stages and steps; encoders."""
    routes = [(line["route"], line["whole"]) for line in results["speed"]["summary"]]
    routes += [(line["route"], line["whole"]) for line in results.get("peers", {}).get("summary", [])]
    groups = [("whole routes", sorted(routes, key=lambda bar: bar[1]))]
    if "stages" in results:
        summary = results["stages"]["summary"]
        stages = [(line["stage"], line["rate"]) for line in summary["worker"][:-1]]
        stages.append(("render-shard, whole step", summary["steps"]["render-shard"]["rate"]))
        stages.append(("validate-alignment", summary["steps"]["validate-alignment"]["rate"]))
        stages.append(("write-indexed (6 bytes a token)", summary["write"]["rate"] / 6))
        groups.append(("stages alone, one core", sorted(stages, key=lambda bar: bar[1])))
    if "encoders" in results:
        lines = [(line["encoder"], line["rate"]) for line in results["encoders"]["summary"]]
        groups.append(("encoders, content tokens, one core", sorted(lines, key=lambda bar: bar[1])))
    return groups


def draw(results: dict[str, Any], path: Path) -> None:
    """Horizontal bars on a log axis; at each bar its rate and its ratio to the plain route (encoders: to tiktoken)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "spanloom", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    groups = plotted(results)
    plain = tables.plain_rate(results)
    floor = next((rate for name, rate in groups[-1][1] if name == "tiktoken"), None)
    figure, axes = pyplot.subplots(
        len(groups),
        1,
        figsize=(9, 0.5 + sum(0.27 * len(lines) + 0.55 for _, lines in groups)),
        sharex=True,
        gridspec_kw={"height_ratios": [len(lines) + 0.6 for _, lines in groups]},
        layout="constrained",
        squeeze=False,
    )
    for axis, (title, lines) in zip(axes[:, 0], groups, strict=True):
        names, rates = zip(*lines, strict=True)
        base, unit = (floor, "tiktoken") if title.startswith("encoders") else (plain, "plain")
        colours = ["#c44e52" if name in (PLAIN, "tiktoken") else "#4c72b0" for name in names]
        axis.barh(names, [rate / 1e6 for rate in rates], color=colours, height=0.7)
        for place, rate in enumerate(rates):
            ratio = f"  {rate / base:,.1f}×" if base else ""
            axis.text(rate / 1e6 * 1.06, place, f"{rate / 1e6:,.2f} M{ratio}", va="center")
        axis.set_title(f"{title} (× {unit})", loc="left", fontsize=9, fontweight="bold")
        axis.set_xscale("log")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    highest = max(rate for _, lines in groups for _, rate in lines) / 1e6
    axes[0, 0].set_xlim(right=highest * 6)
    axes[-1, 0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes[-1, 0].set_xlabel("million tokens a second, log scale")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path)
    parser.add_argument("--page", type=Path, help="write into the marks of this page instead of printing")
    given = parser.parse_args()
    results = json.loads(given.json.read_bytes())
    sheets = {sheet.key: tables.markdown(sheet) for sheet in [*tables.all_tables(results), bars.sheet(results)]}
    if given.page is None:
        print("\n\n".join(sheets.values()))
        plot = given.json.with_suffix(".svg")
    else:
        sheets["missed"] = tables.markdown(bars.missed(results))
        given.page.write_text(fill(given.page.read_text(), sheets))
        plot = given.page.parent / "images" / PLOT_NAME
        plot.parent.mkdir(exist_ok=True)
    if "speed" in results:
        draw(results, plot)


if __name__ == "__main__":
    main()
