"""The options of a build of SYNTH KD or harmony_chat, and the checks that need no input file.

In: the user's options. Out: `BuildOptions`, checked.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from spanloom.building.options import RunOptions
from spanloom.conversations.source.folder import Source
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import split_decided
from spanloom.families.harmony.contract.history import CutRules, rules_for
from spanloom.families.harmony.contract.profile import SYNTH_KD, profile_of_source
from spanloom.families.harmony.render.audit import check_fraction
from spanloom.families.harmony.render.routes import check_renderer


@dataclass(frozen=True, kw_only=True)
class BuildOptions(RunOptions):
    """The options of a build. `out` None: the default root, or the smoke root of a capped run. `source_as_given`: the
    URI that `source` was staged from, for the record. `workers` None: one per usable CPU, fewer for few rows.

    `shards` None: the number that the source's profile requires, or that its manifest lists. `rules` None: the default
    rules if the profile cuts rows; for others it must be None. `build` fills all three options (see `settled`)."""

    source: Path = Path(defaults.SOURCE)
    source_as_given: str | None = None
    out: Path | None = None
    tokenizer: Path | None = None
    shards: int | None = None
    rules: CutRules | None = None
    valid_fraction: float = defaults.VALID_FRACTION
    caps: Caps = field(default_factory=Caps)
    renderer: str = defaults.RENDERER
    audit_fraction: float = defaults.AUDIT_FRACTION
    max_rejects: str | None = defaults.MAX_REJECTS
    on_duplicate: str = defaults.ON_DUPLICATE
    deep: int = defaults.DEEP

    @property
    def root(self) -> Path:
        return self.out or Path(defaults.CAPPED_ROOT if self.caps.any else defaults.ROOT)


def settled(options: BuildOptions, source: Source) -> BuildOptions:
    """Fills `out`, `shards` and `rules` from the source. Raises SpanloomError for `rules` if its profile has none."""
    profile = profile_of_source(source.format)
    return replace(
        options,
        out=options.out or Path(profile.capped_root if options.caps.any else profile.root),
        shards=len(source.shards),
        rules=rules_for(profile, options.rules),
    )


def check_options(options: BuildOptions) -> None:
    options.check()
    if options.shards is not None and options.shards < 1:
        raise SpanloomError(f"--shards must be at least 1, not {options.shards}")
    split_decided(SYNTH_KD, options.valid_fraction)
    check_renderer(options.renderer)
    check_fraction(options.audit_fraction)
    options.caps.check_root(
        str(options.root), remedy=f"omit --out (it then is {defaults.CAPPED_ROOT}), or give another"
    )
