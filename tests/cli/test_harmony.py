"""The commands of SYNTH KD: every default is in one place, which commands and library read."""

from dataclasses import fields
from pathlib import Path

from conftest import Cli
from spanloom.conversations.trained import parsed_train
from spanloom.families.harmony import defaults as family
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules
from spanloom.families.harmony.contract.profile import HARMONY_CHAT, SYNTH_KD
from spanloom.families.harmony.convert.synth import Conversion
from spanloom.families.harmony.options import BuildOptions
from support.commands import Changed

RENDERING = ("source", "max_rejects", "renderer", "audit_fraction")
SPLITTING = ("valid_fraction", "on_duplicate")
CAPS = ("max_rows", "max_rows_per_shard", "max_tokens")
SAME_NAME = {
    "build": (*RENDERING, *SPLITTING, *CAPS, "deep"),
    "step render-shard": (*RENDERING, *CAPS),
    "step assemble-split": SPLITTING,
    "step write-indexed": ("valid_fraction",),
    "convert-synth": ("shards", "assignment"),
    "convert": ("max_rejects", "rows_per_shard"),
    "ChatConversion": ("max_rejects", "rows_per_shard"),
    "BuildOptions": (*RENDERING, *SPLITTING, "deep"),
    "Caps": ("max_tokens",),  # the caps of rows are those of every family: None, no cap
    "CutRules": ("history", "turns"),
}
"""Command or dataclass → its options whose default is the constant of their name."""


def test_every_default_of_an_option_is_the_one_of_the_family(changed: Changed) -> None:
    constants, defaults = changed(
        "spanloom.families.harmony.defaults",
        "spanloom.families.harmony.options:BuildOptions",
        "spanloom.families.harmony.contract.caps:Caps",
        "spanloom.families.harmony.convert.conversion:ChatConversion",
        "spanloom.families.harmony.contract.history:CutRules",
    )
    for command, names in SAME_NAME.items():
        assert {name: defaults[command][name] for name in names} == {name: constants[name.upper()] for name in names}
    other_names = {
        ("convert-synth", "out"): "SOURCE",  # where a build looks for what was converted
        ("convert-synth", "identity"): "MODEL_IDENTITY",
        ("convert-synth", "effort"): "REASONING_EFFORT",
        ("convert-synth", "date"): "START_DATE",
        ("convert-synth", "cutoff"): "KNOWLEDGE_CUTOFF",
        ("sample", "out"): "RAW_SAMPLE",
        ("sample", "rows"): "SAMPLE_ROWS",
    }
    assert {place: defaults[place[0]][place[1]] for place in other_names} == {
        place: constants[name] for place, name in other_names.items()
    }


def test_what_depends_on_the_profile_is_none_until_the_source_is_read() -> None:
    """Shards, and what conversations show and train; the profile's number of shards is the constant."""
    options = BuildOptions()
    assert (options.shards, options.rules) == (None, None)
    assert (SYNTH_KD.source.shards, HARMONY_CHAT.source.shards) == (family.SHARDS, None)
    assert CutRules() == CutRules(history=family.HISTORY, train=parsed_train(family.TRAIN), turns=family.TURNS)


def test_a_conversion_in_python_has_the_defaults_of_the_command() -> None:
    made = Conversion()
    assert (made.model_identity, made.reasoning_effort) == (
        family.MODEL_IDENTITY,
        family.REASONING_EFFORT.capitalize(),
    )
    assert (made.start_date, made.knowledge_cutoff) == (family.START_DATE, family.KNOWLEDGE_CUTOFF)
    assert (made.shards, made.assignment) == (family.SHARDS, family.ASSIGNMENT)


def test_every_option_of_build_reaches_the_build(cli: Cli, tmp_path: Path) -> None:
    """Each with another value than its default; the source does not exist, so that the build ends where it begins."""
    source, out, asset = tmp_path / "source", tmp_path / "out", tmp_path / "o200k_base.tiktoken"
    earlier = tmp_path / "earlier"
    options = BuildOptions(
        source=source,
        source_as_given=str(source),
        out=out,
        tokenizer=asset,
        shards=5,
        rules=CutRules(history="keep", train=("final",), turns="last", call_format="json", mask_generation_prompt=True),
        valid_fraction=0.25,
        caps=Caps(max_rows=7, max_rows_per_shard=6, max_tokens=900),
        max_rejects="0.5%",
        on_duplicate="keep",
        renderer="harmony",
        audit_fraction=0.125,
        workers=3,
        deep=11,
        resume=False,
        overwrite=True,
        keep_work=True,
        reader="independent",
        allow_unknown_sha=True,
        disk_check=False,
        reuse=earlier,
    )
    unchanged = [
        each.name for each in fields(options) if getattr(options, each.name) == getattr(BuildOptions(), each.name)
    ]
    assert unchanged == [], "an option that is not tried here"
    done = cli(
        *("build", "--verbose", "--source", source, "--out", out, "--tokenizer", asset, "--shards", 5),
        *("--history", "keep", "--train", "final", "--turns", "last", "--call-format", "json"),
        *("--mask-generation-prompt", "--valid-fraction", 0.25),
        *("--max-rows", 7, "--max-rows-per-shard", 6, "--max-tokens", 900, "--max-rejects", "0.5%"),
        *("--on-duplicate", "keep", "--renderer", "harmony", "--audit-fraction", 0.125, "--workers", 3, "--deep", 11),
        *("--no-resume", "--overwrite", "--keep-work", "--allow-unknown-sha", "--no-disk-check"),
        *("--reader", "independent", "--reuse", earlier),
    )
    assert done.returncode == 1, done.stderr
    assert repr(options) in done.stderr.replace("\n", "")
    assert not out.exists()
