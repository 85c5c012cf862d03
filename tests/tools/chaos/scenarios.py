"""The commands whose every file-system change is made to fail, each on as little data as shows all that it does.

In: an empty folder and a driver. Out: the folder as it is before the command, with files of others in it, and the
command. All commands run in that folder and name places in it by relative paths.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from support import chat_datasets, sources
from support.raw_synth import raw_row, write_raw
from tools.chaos.driver import Driver, Fault

Prepare = Callable[[Path, Driver], None]
ROOT = "place/dataset"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`prepare` makes all that stands before the command. `foreign` are files and links of others: never to change.

    `root` is the dataset's, if the command makes one. `keeps_whole`: a finished dataset stood there before, so at every
    moment one must be whole, the old or the new. `index_last`: an `.idx` stands only beside its whole `.bin`.
    `interrupted`: the command was killed after this share of its changes before it is run.
    """

    name: str
    arguments: tuple[str, ...]
    prepare: Prepare
    foreign: tuple[str, ...] = ()
    root: str = ROOT
    keeps_whole: bool = False
    index_last: bool = True
    interrupted: float | None = None
    environment: dict[str, str] = field(default_factory=dict)


def _words(line: str) -> tuple[str, ...]:
    return tuple(line.split())


BUILD_OPTIONS = _words("--workers 1 --deep 0 --renderer harmony --valid-fraction 0.5 --max-rejects 1 --quiet --json")
BESIDE = ("place/notes.txt", "place/shard_00_tokens.bin", "place/link", "outside/.kept.spanloom-tmp-abcdefgh")


def build_arguments(source: str = "source", *more: str, shards: int = 1, root: str = ROOT) -> tuple[str, ...]:
    return ("build", "--source", source, "--out", root, "--shards", str(shards), *BUILD_OPTIONS, *more)


def write_foreign(folder: Path, names: tuple[str, ...]) -> None:
    """Files of somebody else, a link to a folder among them, all older than anything that a command makes."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "link":
            path.symlink_to(os.path.relpath(folder / "outside", path.parent))
        else:
            path.write_text(f"{name} is not Spanloom's\n")
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)


def write_small_source(folder: Path, prefix: str, *, shards: int = 1, bad: bool = True) -> None:
    """Shards of six rows, so that with half of them valid no split is empty; the last row of each is one to reject."""
    rows = [sources.rows(6, f"{prefix}{shard}") for shard in range(shards)]
    if bad:
        for shard in rows:
            shard.append(sources.row(f"{prefix}-bad", [{"role": "tool", "content": "42"}]))
            shard[-1]["synth_id"] = f"{prefix}-bad-{len(shard)}"
    sources.write_source(folder, rows)


def must(driver: Driver, *arguments: str, environment: dict[str, str] | None = None) -> None:
    """Runs a command that only makes what a scenario starts from."""
    run = driver.run(arguments, watch=False, environment=environment)
    if run.code:
        raise RuntimeError(f"spanloom {' '.join(arguments)} ended with exit code {run.code}: {run.output}")


# --- What stands before ----------------------------------------------------------------------------------------------


def _nothing_built(shards: int) -> Prepare:
    def prepare(folder: Path, _: Driver) -> None:
        write_small_source(folder / "source", "new", shards=shards)
        write_foreign(folder, BESIDE)

    return prepare


WITHIN = (f"{ROOT}/notes.txt", f"{ROOT}/nested/.part.spanloom-tmp-abcdefgh", f"{ROOT}/link")


def _another_built(folder: Path, driver: Driver) -> None:
    write_small_source(folder / "old_source", "old")
    write_small_source(folder / "source", "new")
    must(driver, *build_arguments("old_source"))
    write_foreign(folder, (*BESIDE, *WITHIN))


def _same_built(folder: Path, driver: Driver) -> None:
    write_small_source(folder / "source", "new")
    must(driver, *build_arguments())
    write_foreign(folder, (*BESIDE, *WITHIN))


def _half_built(folder: Path, driver: Driver) -> None:
    """An unfinished build of another source, which `--no-resume` discards."""
    write_small_source(folder / "old_source", "old")
    write_small_source(folder / "source", "new")
    arguments = build_arguments("old_source")
    whole = driver.run(arguments)
    shutil.rmtree(folder / "place")
    driver.run(arguments, fault=Fault(what="kill", number=int(0.8 * len(whole.changes))))
    write_foreign(folder, (*BESIDE, f"{ROOT}/notes.txt"))


def _transcripts(folder: Path, _: Driver) -> None:
    chat_datasets.write_transcripts(folder / "transcripts.jsonl", chat_datasets.transcripts(12))
    chat_datasets.write_tokenizer(folder / "tokenizer.json")
    write_foreign(folder, BESIDE)


def _chat(folder: Path, _: Driver) -> None:
    """Seven records, of which the third and the last are refused."""
    with (folder / "chat.jsonl").open("w") as stream:
        for number in range(7):
            answer = {"role": "assistant", "content": f"A{number}", **({"audio": "x"} if number in (2, 6) else {})}
            stream.write(json.dumps({"messages": [{"role": "user", "content": "Q"}, answer]}) + "\n")
    write_foreign(folder, BESIDE)


def _raw(folder: Path, driver: Driver) -> None:
    must(driver, "sample", "--out", "raw", "--rows", "8")
    write_foreign(folder, BESIDE)


def _built_in(place: str) -> Prepare:
    def prepare(folder: Path, driver: Driver) -> None:
        write_small_source(folder / "source", "new")
        must(driver, *build_arguments(root=place))
        write_foreign(folder, BESIDE)

    return prepare


BUCKET = "chaos"


def _fetched_from(store: "object") -> Prepare:
    def prepare(folder: Path, driver: Driver) -> None:
        from support.stores.gcs import CloudStorage, Stored

        assert isinstance(store, CloudStorage)
        write_small_source(folder / "source", "new")
        must(driver, *build_arguments(root="made"))
        made = [path for path in (folder / "made").rglob("*") if path.is_file()]
        store.objects[BUCKET] = {
            path.relative_to(folder).as_posix(): Stored(path.read_bytes(), 1000 + number, {})
            for number, path in enumerate(sorted(made))
        }
        shutil.rmtree(folder / "made")
        shutil.rmtree(folder / "source")
        write_foreign(folder, (*BESIDE, f"{ROOT}/notes.txt"))

    return prepare


def _traces(*commands: str) -> Prepare:
    """A store of traces in `place/traces`, and what these commands make of it."""

    def prepare(folder: Path, driver: Driver) -> None:
        must(driver, *_words("traces sample --out traces.jsonl --traces 40 --tokenizer tokenizer.json"))
        must(driver, *_words(f"traces ingest traces.jsonl --source-name s --created-at {CREATED} --root place/traces"))
        for command in commands:
            must(driver, *_words(command))
        write_foreign(folder, BESIDE)

    return prepare


def _toolcalls(*commands: str) -> Prepare:
    """The data of the demonstration in `in`, and what these commands make of it."""

    def prepare(folder: Path, driver: Driver) -> None:
        must(driver, *_words("toolcalls demo --out in"))
        for command in commands:
            must(driver, *_words(command))
        write_foreign(folder, BESIDE)

    return prepare


CREATED = "2026-01-01T00:00:00Z"
TRACES_BUILD = "traces build --name d --version 1 --reproducible --root place/traces --json"
CONVERT_B4 = "toolcalls convert --from b4 --input in/b4.jsonl --completions in/completions.jsonl --system Tools."
CONVERT_ULTRACHAT = "toolcalls convert --from ultrachat --input in/ultrachat.jsonl --system Tools."
MERGE = "toolcalls merge --harmful-dir samples/harmful --retain-dir samples/retain --oversample"
MODEL = "--template in/chat_template.jinja --tokenizer in"


def _row_groups(folder: Path, _: Driver) -> None:
    """Raw rows in two row groups, one for each shard."""
    write_raw(folder / "raw/rows.parquet", [raw_row(number) for number in range(8)], row_group_size=4)
    write_foreign(folder, BESIDE)


def _inventories(folder: Path, driver: Driver) -> None:
    """Both shards, converted; their inventories wait to be joined."""
    _row_groups(folder, driver)
    for shard in (0, 1):
        must(driver, *_convert_shard(shard))


def _convert_shard(shard: int) -> tuple[str, ...]:
    return _words(
        f"step convert-shard --shard {shard} --shards 2 --raw raw --out place/converted "
        f"--inventory inventories/{shard}.json"
    )


def _nothing(folder: Path, _: Driver) -> None:
    write_foreign(folder, BESIDE)


def _model(folder: Path, driver: Driver) -> None:
    """A small model's folder and conversations for it."""
    must(driver, *_words("model sample --out sampled"))
    write_foreign(folder, BESIDE)


def _model_source(folder: Path, driver: Driver) -> None:
    """The same, and a source of them."""
    _model(folder, driver)
    must(driver, *_words("convert sampled/chat.jsonl --out source --yes --quiet"))


MODEL_BUILD = (
    "build --source source --model sampled/model --valid-fraction 0.3 --workers 1 --deep 2 --quiet --json --out"
)


def _model_dataset(folder: Path, driver: Driver) -> None:
    _model_source(folder, driver)
    must(driver, *_words(f"{MODEL_BUILD} place/data"))


def _written_in_place(name: str, command: str, prepare: Prepare) -> Scenario:
    """A command that replaces the files that it is asked for."""
    return Scenario(name=name, arguments=_words(command), prepare=prepare, foreign=BESIDE, root="place/made")


def family_scenarios() -> list[Scenario]:
    """The commands of reasoning traces and of tool calls."""
    converted = (f"{CONVERT_B4} --out samples", f"{CONVERT_ULTRACHAT} --out samples")
    merged = (*converted, f"{MERGE} --output train.jsonl")
    return [
        _written_in_place("traces build", TRACES_BUILD, _traces()),
        _written_in_place(
            "traces export",
            "traces export d-1 --format tunix_sft --out place/made.jsonl --root place/traces --quiet",
            _traces(TRACES_BUILD),
        ),
        Scenario(
            name="traces tokenize",
            arguments=_words(
                f"traces tokenize d-1 --tokenizer tokenizer.json --out {ROOT} --root place/traces "
                "--valid-fraction 0.2 --quiet --json"
            ),
            prepare=_traces(TRACES_BUILD),
            foreign=BESIDE,
        ),
        Scenario(
            name="step ingest-traces",
            arguments=_words(
                "step ingest-traces --source traces.jsonl --store place/made.sqlite --source-name s "
                f"--created-at {CREATED}"
            ),
            prepare=_traces(),
            foreign=BESIDE,
            root="place/made",
        ),
        _written_in_place("toolcalls convert", f"{CONVERT_B4} --out place/made", _toolcalls()),
        _written_in_place(
            "toolcalls merge",
            f"{MERGE} --output place/made/train.jsonl --eval-output place/made/eval.jsonl --eval-fraction 0.2 "
            "--stats place/made/stats.json",
            _toolcalls(*converted),
        ),
        _written_in_place(
            "toolcalls export",
            f"toolcalls export --data train.jsonl {MODEL} --output place/made/train.parquet",
            _toolcalls(*merged),
        ),
        Scenario(
            name="toolcalls tokenize",
            arguments=_words(
                f"toolcalls tokenize --data train.jsonl {MODEL} --out {ROOT} --valid-fraction 0.4 --quiet --json"
            ),
            prepare=_toolcalls(*merged),
            foreign=BESIDE,
        ),
    ]


def cluster_scenarios() -> list[Scenario]:
    """The steps that convert raw SYNTH shard by shard."""
    return [
        Scenario(
            name="step convert-shard",
            arguments=_convert_shard(0),
            prepare=_row_groups,
            foreign=BESIDE,
            root="place/converted",
        ),
        Scenario(
            name="step assemble-source",
            arguments=_words(
                "step assemble-source --inventory inventories/0.json --inventory inventories/1.json "
                "--out place/converted"
            ),
            prepare=_inventories,
            foreign=BESIDE,
            root="place/converted",
        ),
    ]


def model_scenarios() -> list[Scenario]:
    """The commands about any model, and the audit."""
    return [
        _written_in_place("model sample", "model sample --out place/made", _nothing),
        Scenario(
            name="build --model",
            arguments=_words(f"{MODEL_BUILD} {ROOT}"),
            prepare=_model_source,
            foreign=BESIDE,
        ),
        _written_in_place(
            "audit",
            "audit place/data --model sampled/model --declare duplicate --html place/made.html --quiet --json",
            _model_dataset,
        ),
    ]


# --- The commands ----------------------------------------------------------------------------------------------------


def scenarios(store: object) -> list[Scenario]:
    """All of them; `store` is the `CloudStorage` that `fetch` reads from."""
    build = Scenario(name="build", arguments=build_arguments(shards=2), prepare=_nothing_built(2), foreign=BESIDE)
    overwrite = Scenario(
        name="build --overwrite",
        arguments=build_arguments("source", "--overwrite"),
        prepare=_another_built,
        foreign=(*BESIDE, *WITHIN),
        keeps_whole=True,
    )
    pack = Scenario(
        name="chat pack",
        arguments=_words(
            f"chat pack --input transcripts.jsonl --tokenizer tokenizer.json --out {ROOT} --block-size 64 "
            "--post-training --shards 2 --workers 1 --deep 2 --quiet --json"
        ),
        prepare=_transcripts,
        foreign=BESIDE,
    )
    convert = Scenario(
        name="convert-synth",
        arguments=_words("convert-synth --raw raw --out place/converted --shards 2 --quiet --json"),
        prepare=_raw,
        foreign=BESIDE,
        root="place/converted",
    )
    convert_chat = Scenario(
        name="convert",
        arguments=_words("convert chat.jsonl --out place/chat --rows-per-shard 2 --max-rejects 2 --quiet --json"),
        prepare=_chat,
        foreign=BESIDE,
        root="place/chat",
    )
    export = Scenario(
        name="export",
        arguments=_words("export place/made --out place/exported --tokens-per-file 100 --quiet --json"),
        prepare=_built_in("place/made"),
        foreign=BESIDE,
        root="place/exported",
    )
    plan = Scenario(
        name="plan",
        # So short that the documents need windows.
        arguments=_words("plan place/made --sequence-length 16 --out place/planned --quiet --json"),
        prepare=_built_in("place/made"),
        foreign=BESIDE,
        root="place/planned",
    )
    fetch = Scenario(
        name="fetch",
        arguments=("fetch", f"gs://{BUCKET}/made", ROOT, "--quiet", "--json"),
        prepare=_fetched_from(store),
        foreign=(*BESIDE, f"{ROOT}/notes.txt"),
        index_last=False,  # until the manifest stands nobody is promised anything of a folder that is being fetched
        environment={"STORAGE_EMULATOR_HOST": store.address},  # type: ignore[attr-defined]
    )
    one_shard = replace(build, name="build, one shard", arguments=build_arguments(), prepare=_nothing_built(1))
    return [
        build,
        *(_interrupted(one_shard, "build", share) for share in (0.4, 0.9)),
        overwrite,
        *(_interrupted(overwrite, "build --overwrite", share) for share in (0.05, 0.5, 0.95)),
        Scenario(
            name="build again",
            arguments=build_arguments(),
            prepare=_same_built,
            foreign=(*BESIDE, *WITHIN),
            keeps_whole=True,
        ),
        Scenario(
            name="build --no-resume",
            arguments=build_arguments("source", "--no-resume"),
            prepare=_half_built,
            foreign=(*BESIDE, f"{ROOT}/notes.txt"),
        ),
        pack,
        _interrupted(pack, "chat pack", 0.6),
        convert,
        convert_chat,
        _interrupted(convert_chat, "convert", 0.6),
        export,
        plan,
        *(replaced := overwriting_scenarios(convert_chat, export, plan)),
        *(_interrupted(each, each.name, 0.95) for each in replaced),
        fetch,
        _interrupted(fetch, "fetch", 0.6),
        *family_scenarios(),
        *cluster_scenarios(),
        *model_scenarios(),
    ]


def overwriting_scenarios(convert: Scenario, export: Scenario, plan: Scenario) -> list[Scenario]:
    """The old result has files that the new one lacks, files of the same names, and lacks files of the new one."""
    return [
        _overwriting(convert, "--identity", "Other.", "--drop", "audio"),
        _overwriting(export, "--tokens-per-file", "40"),
        _overwriting(plan, "--seed", "7"),
    ]


def _overwriting(scenario: Scenario, *before: str) -> Scenario:
    """The command with --overwrite over its own result of other options, `before`."""

    def prepare(folder: Path, driver: Driver) -> None:
        scenario.prepare(folder, driver)
        must(driver, *scenario.arguments, *before)

    arguments = (*scenario.arguments, "--overwrite")
    return replace(scenario, name=f"{scenario.name} --overwrite", arguments=arguments, prepare=prepare)


def _interrupted(scenario: Scenario, name: str, share: float) -> Scenario:
    return replace(scenario, name=f"{name}, resumed at {share:.0%}", interrupted=share)
