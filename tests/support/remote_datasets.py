"""Small built datasets with their intermediates, for tests that publish and fetch them."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import Cli
from spanloom.building.parts.work import ShardWork
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.storage import publish_bytes
from spanloom.storage.publishing import publish_folder
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import Uri
from support import sources


@dataclass(frozen=True, kw_only=True)
class Built:
    """What `spanloom build --keep-work` left: the dataset at `root`, the intermediates in `root/.work`."""

    source: Path
    root: Path

    def manifest(self, shard: int) -> Path:
        """The manifest of a rendered shard, as render-shard hands it on: the shard is at a work place in a folder."""
        path = self.root.parent / "manifests" / f"rendered_{shard:02d}.json"
        if path.exists():
            return path
        kept, place = self.root / ".work", self.root.parent / "work"
        with (
            scratch_for("work", [path], self.root.parent) as scratch,
            ShardWork(scratch, str(place), {"root": str(self.root)}, shard, SYNTH_KD.form, limit=1) as work,
        ):
            for name in ("rendered", "ids"):
                shutil.copytree(kept / f"{name}_{shard:02d}", work.parts / name)
            whole = json.loads((kept / f"rendered_{shard:02d}/rendered.json").read_bytes())
            given = whole.pop("environment")
            work.begin()
            for part in whole["parts"]:
                work.add(part)
            work.finish(whole)
            publish_bytes(work.rendered(whole, given).as_json(), path)
        return path

    def inputs(self, shard: int) -> list[object]:
        """The inputs of write-indexed, as options."""
        return ["--rendered", self.manifest(shard), "--valid-fraction", self.content()["split"]["valid_fraction"]]

    @property
    def split(self) -> list[object]:
        """The split, as the option of assemble-manifest."""
        return ["--split", self.root / ".work/split.json"]

    def files(self, shard: int | None = None) -> dict[str, bytes]:
        """The data files, by relative path; of one shard or of all."""
        return {
            name: data
            for name, data in sources.data_files(self.root).items()
            if shard is None or f"/shard_{shard:02d}" in name
        }

    def content(self) -> dict[str, Any]:
        return sources.content(self.root)


def build(directory: Path, cli: Cli, *options: object, rows: Sequence[int] = (40, 30, 20, 10)) -> Built:
    """A dataset of `sum(rows)` documents below `directory`."""
    shards = [sources.rows(count, f"s{shard}") for shard, count in enumerate(rows)]
    source = sources.write_source(directory / "source", shards)
    root = directory / "root"
    outcome = cli("build", "--source", source, "--out", root, "--workers", 1, "--deep", 0, "--keep-work", *options)
    assert outcome.returncode == 0, outcome.stderr
    return Built(source=source, root=root)


def publish(built: Built, uri: Uri, scratch: Path, *, pending: bool = False) -> None:
    """Puts a finished dataset into a bucket, or one that was not validated."""
    copy = scratch / "copy"
    shutil.copytree(built.root, copy, ignore=shutil.ignore_patterns(".work", "report.json"))
    last = "manifest.json"
    if pending:
        (copy / last).rename(copy / "manifest.pending.json")
        last = "manifest.pending.json"
    publish_folder(copy, uri, last=last)
