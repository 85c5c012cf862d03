"""Conversations for gpt-oss, and SYNTH: how the rows of a source become documents.

In: a source folder, the rules, a renderer. Out: a `Recipe` for `spanloom.building`.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from spanloom.building.recipe import Counts, DatasetForm, Made, OfFolder, Target
from spanloom.building.recipe import Part as MachinePart
from spanloom.conversations.source.folder import Part, Source, SourceShard, parts_of, read_rows
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import facts_of
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.contract.profile import Profile, profile_of_family, profile_of_source
from spanloom.families.harmony.render.audit import Auditor, audit_floor, audit_share, audit_stride
from spanloom.families.harmony.render.routes import LIBRARIES, Renderer, load_renderer, renderer_version
from spanloom.families.harmony.render.rows import render_rows
from spanloom.families.harmony.render.text_encoder import FEW_CHARACTERS
from spanloom.tokenizers.o200k.asset import ASSET_SHA256


@dataclass(frozen=True, kw_only=True)
class PartWork:
    """Row groups of a shard, and which of their rows are audited.

    Every `audit_stride`-th row is audited (0: none), up to the share `audit_fraction` of the tokens or `audit_floor`
    tokens; the first row of each shape of conversation is audited in addition.
    """

    part: Part
    audit_stride: int
    audit_floor: int


@dataclass(frozen=True, kw_only=True)
class HarmonyRecipe(OfFolder):
    """A build of SYNTH KD or harmony_chat. `origin`: what the source's manifest says of it; `caps`: of the whole run;
    `shards`: how many the source has; `rules`: None if the profile cuts no rows; `given`: places as given, for the
    manifest."""

    profile: Profile
    origin: Mapping[str, Any]
    asset: Path
    renderer: str
    rules: CutRules | None
    audit_fraction: float
    caps: Caps
    shards: int
    valid_fraction: float = defaults.VALID_FRACTION

    code = "harmony"
    libraries = LIBRARIES

    @property
    def form(self) -> DatasetForm:
        return self.profile.form

    def identity(self) -> Mapping[str, Any]:
        return {
            "tokenizer_sha256": ASSET_SHA256,
            "renderer": renderer_version(self.renderer),
            "rules": self.rules and self.rules.as_dict(),
            "audit_fraction": self.audit_fraction,
            **({} if self.caps.longest is None else {"longest": self.caps.longest}),
        }

    def parts(self, shard: SourceShard, rows: int) -> Iterator[MachinePart]:
        stride = audit_stride(rows, self.audit_fraction)
        for part in parts_of(shard, rows):
            floor = audit_floor(part.rows, rows)
            yield MachinePart(
                index=part.index,
                first_row=part.first_row,
                rows=part.rows,
                key=f"{shard.sha256}, row groups {part.row_groups}, audit {stride} {floor}",
                holds=PartWork(part=part, audit_stride=stride, audit_floor=floor),
            )

    def made(self, shard: SourceShard, part: MachinePart, token_budget: int | None) -> Iterator[Made]:
        renderer, work = _renderer(self.renderer, self.asset, self.profile), part.holds
        auditor = None
        if renderer.audited and work.audit_stride:
            auditor = Auditor(
                renderer.encoding,
                work.audit_stride,
                self.profile,
                self.rules,
                share=audit_share(self.audit_fraction),
                floor=work.audit_floor,
            )
        for batch in read_rows(shard, work.part):
            made = render_rows(
                shard,
                batch,
                renderer,
                rules=self.rules,
                token_budget=token_budget,
                auditor=auditor,
                longest=self.caps.longest,
            )
            if token_budget is not None:
                token_budget -= made.documents.tokens.size
            yield made

    @property
    def build(self) -> Mapping[str, Any]:
        return facts_of(self.profile, {"shards": self.shards, **self._facts()}, self.valid_fraction)

    def _facts(self) -> Mapping[str, Any]:
        """What the record of a shard says of all shards alike."""
        return {
            "source": self.origin,
            "tokenizer_sha256": ASSET_SHA256,
            "renderer": {"name": self.renderer, "version": renderer_version(self.renderer)},
            "caps": self.caps.as_dict(),
            "rules": self.rules and self.rules.as_dict(),
        }

    def counted(self, counts: Counts) -> Mapping[str, Any]:
        audit = {name: counts.get("audit", Counter())[name] for name in ("fallback_rows", "audited_rows")}
        cutting = {"cutting": self.rules.counts([counts.get("cutting", Counter())])} if self.rules else {}
        return {**self._facts(), "audit": audit, **cutting}


def recipe_of(
    source: Source,
    *,
    asset: Path,
    renderer: str,
    rules: CutRules | None,
    audit_fraction: float,
    caps: Caps,
    given: Mapping[str, Any],
    valid_fraction: float = defaults.VALID_FRACTION,
) -> HarmonyRecipe:
    """The recipe for an opened source. `rules`: those of its profile."""
    return HarmonyRecipe(
        profile=profile_of_source(source.format),
        origin=source.origin,
        asset=asset,
        renderer=renderer,
        rules=rules,
        audit_fraction=audit_fraction,
        caps=caps,
        shards=len(source.shards),
        given=given,
        valid_fraction=valid_fraction,
    )


def target_of(record: Mapping[str, Any], *, valid_fraction: float) -> Target:
    """The dataset of a rendered shard. `record`: its `rendered.json`."""
    profile = profile_of_family(record["family"], record["source"]["schema_version"])
    build = facts_of(profile, record, valid_fraction)
    return Target(form=profile.form, build=build, code=HarmonyRecipe.code, libraries=LIBRARIES)


@cache
def _renderer(name: str, asset: Path, profile: Profile) -> Renderer:
    renderer = load_renderer(name, asset, profile, few=FEW_CHARACTERS)
    # Parsing makes many objects, which starts the garbage collector often. The objects of the libraries live as long as
    # the process. Excluding them from collection saves 5 % of the rendering time. A caller's process stays as it is.
    if parent_process() is not None:
        gc.freeze()
    return renderer
