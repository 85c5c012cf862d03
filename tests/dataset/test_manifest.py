"""The manifest: its schema, its create-only laws, what differs between two, and the commit it names."""

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import spanloom
from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.manifest import MANIFEST_NAME, PENDING_NAME, ManifestError
from spanloom.errors import ConflictError
from spanloom.families import FAMILIES, dataset_family
from spanloom.provenance import canonical_json, readable_json
from support import sources

SHA = "0" * 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 rows in 4 shards; one row of shard 01 is bad."""
    shards = [sources.rows(count, f"s{shard}") for shard, count in enumerate((8, 5, 3, 2))]
    shards[1][2]["messages_json"] = "{"
    return sources.write_source(tmp_path_factory.mktemp("source"), shards)


@pytest.fixture(scope="module")
def dataset(source: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    """What a tiny build makes of it."""
    root = tmp_path_factory.mktemp("dataset") / "root"
    done = cli("build", "--source", source, "--out", root, "--valid-fraction", 0.5, "--max-rejects", 1, "--workers", 1)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def written(dataset: Path) -> dict[str, Any]:
    """The real manifest, to be changed at will."""
    return dict(json.loads((dataset / MANIFEST_NAME).read_bytes()))


def put(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    """A mutation: the place `path` of a manifest gets `value`."""

    def mutate(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = value

    return mutate


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def mutate(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        del whole[path[-1]]

    return mutate


LEAVING = (
    *("", "/etc/passwd", "../x", "train/../../x", "train/..", "./x"),
    *("train//x", "train/", "train\\x", "a\0b", ".work/new/manifest.json", "train/.x"),
)
"""Names of files that would lie elsewhere than below the root, or mean two things."""

MUTATIONS: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("(top)", drop("environment")),
    ("(top)", put(1, "extra")),
    ("schema_version", put("spanloom_dataset_v2", "schema_version")),
    ("content", drop("content", "git_sha")),
    ("content.git_sha", put("abc", "content", "git_sha")),
    ("content.git_sha", put(SHA + "-modified", "content", "git_sha")),
    ("content.config_sha256", put("A" * 64, "content", "config_sha256")),
    ("content.tokenizer", drop("content", "tokenizer", "eod")),
    ("content.input", drop("content", "input", "manifest_sha256")),
    *(
        (place, put(path, *where, "path"))
        for place, where in (
            ("content.shards.0.splits.train.files.0.path", ("content", "shards", 0, "splits", "train", "files", 0)),
            ("content.shards.1.rejects_file", ("content", "shards", 1, "rejects_file")),
            ("content.input.shards.0.path", ("content", "input", "shards", 0)),
        )
        for path in LEAVING
    ),
    ("content.input.shards.2.rows", put("3", "content", "input", "shards", 2, "rows")),
    ("content.split.valid_fraction", put(1.5, "content", "split", "valid_fraction")),
    ("content.split.threshold", put(9223372036854775808, "content", "split", "threshold")),
    ("content.alignment", put("tokens", "content", "alignment")),
    ("content.arrays.tokens", put("float32", "content", "arrays", "tokens")),
    ("content.totals.rows_read", put(-1, "content", "totals", "rows_read")),
    ("content.totals.rows_read", put(True, "content", "totals", "rows_read")),
    ("content.totals.splits.train", drop("content", "totals", "splits", "train", "longest")),
    ("content.shards", put([], "content", "shards")),
    ("content.shards.0", put(1, "content", "shards", 0, "extra")),
    ("content.shards.0.rejects_file", put({}, "content", "shards", 0, "rejects_file")),
    (
        "content.shards.0.splits.train.files.0.sha256",
        put("", "content", "shards", 0, "splits", "train", "files", 0, "sha256"),
    ),
    ("environment", drop("environment", "created_at")),
]


def test_a_real_manifest_follows_the_schema(dataset: Path, written: dict[str, Any]) -> None:
    assert manifest.read(dataset).as_dict() == written
    assert manifest.read(dataset / MANIFEST_NAME).as_dict() == written
    assert manifest.check(written, dataset).as_dict() == written


def test_what_is_read_is_written_again_as_it_was(tmp_path: Path, written: dict[str, Any]) -> None:
    """The order of keys, numbers as they were spelled, and keys that this version does not know."""
    written["content"]["split"]["valid_fraction"] = 1
    written["content"]["input"]["shards"][0]["etag"] = {"of": ["a", None]}
    text = readable_json(written)
    assert readable_json(manifest.check(json.loads(text), tmp_path).as_dict()) == text


def described(model: type[BaseModel], schema: dict[str, Any], whole: dict[str, Any], place: str) -> Iterator[str]:
    """Where the type and the schema differ: in the keys of an object, and in which of them must be there."""
    schema = resolved(schema, whole)
    keys = {name for name, field in model.model_fields.items() if field.is_required()}
    optional = set(model.model_fields) - keys
    # What the schema demands of one family alone is in its `allOf`; there the type says None.
    if keys != set(schema["required"]):
        yield f"{place}: the type demands {sorted(keys)}, the schema {sorted(schema['required'])}"
    if unknown := (keys | optional) - set(schema["properties"]):
        yield f"{place}: the schema does not know {sorted(unknown)}"
    if missing := set(schema["properties"]) - keys - optional:
        yield f"{place}: the type does not know {sorted(missing)}"
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            for each in objects_in(schema["properties"][name], whole):
                yield from described(inner, each, whole, f"{place}.{name}")


def resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """An object of the schema with what it refers to and what it is made of joined."""
    if "$ref" in schema:
        return resolved(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole)
    parts = [resolved(part, whole) for part in schema.get("allOf", []) if "if" not in part]
    joined: dict[str, Any] = {"required": [], "properties": {}}
    for part in [*parts, schema]:
        joined["required"] = [*joined["required"], *part.get("required", [])]
        joined["properties"] |= part.get("properties", {})
    return joined


def objects_in(schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects with keys of their own that stand at a place: itself, each of a list, each value of a mapping."""
    if "$ref" in schema:
        yield from objects_in(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole)
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from objects_in(one, whole)
    elif "items" in schema:
        yield from objects_in(schema["items"], whole)
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from objects_in(schema["additionalProperties"], whole)
    elif "properties" in schema or "allOf" in schema:
        yield schema


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def test_the_type_and_the_schema_say_the_same() -> None:
    whole = manifest.schema()
    assert list(described(manifest.Manifest, whole, whole, "manifest")) == []


def test_the_schema_and_the_table_know_the_same_families() -> None:
    assert set(manifest.known_families()) == set(FAMILIES)
    conditions = manifest.schema()["properties"]["content"]["allOf"]
    assert [one["if"]["properties"]["family"]["const"] for one in conditions] == list(manifest.known_families())
    assert not any("else" in one for one in conditions)


def test_an_unknown_family_is_an_error_that_lists_the_known_ones(tmp_path: Path, written: dict[str, Any]) -> None:
    written["content"]["family"] = "board_games"
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(written))
    with pytest.raises(
        ManifestError, match=r"unknown dataset family 'board_games'.*synth_kd, harmony_chat, packed_chat"
    ):
        manifest.read(tmp_path)
    with pytest.raises(
        ManifestError, match=r"unknown dataset family 'board_games'\n.*synth_kd, harmony_chat, packed_chat"
    ):
        dataset_family("board_games")


@pytest.mark.parametrize(("place", "mutate"), MUTATIONS)
def test_the_schema_refuses_and_names_the_place(
    tmp_path: Path, written: dict[str, Any], place: str, mutate: Callable[[dict[str, Any]], None]
) -> None:
    mutate(written)
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(written))
    with pytest.raises(ManifestError) as refusal:
        manifest.read(tmp_path)
    assert f" at {place}: " in str(refusal.value)
    assert refusal.value.where == str(tmp_path / MANIFEST_NAME)


@pytest.mark.parametrize(
    ("text", "says"), [(b"{", "is not JSON"), (b'"\xff"', "is not JSON"), (b"[]", " at (top): "), (b"", "is not JSON")]
)
def test_what_is_no_manifest_is_refused_in_words(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(text)
    with pytest.raises(ManifestError) as refusal:
        manifest.read(tmp_path)
    assert says in str(refusal.value)


def test_a_root_without_a_manifest_is_no_dataset(tmp_path: Path, written: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="not a finished dataset\n"):
        manifest.read(tmp_path)
    manifest.write_pending(tmp_path, written)
    with pytest.raises(ManifestError, match="built but not validated"):
        manifest.read(tmp_path)
    assert manifest.read_any(tmp_path).as_dict() == written


def test_the_pending_manifest_is_created_and_never_overwritten(tmp_path: Path, written: dict[str, Any]) -> None:
    manifest.write_pending(tmp_path, written)
    before = (tmp_path / PENDING_NAME).read_bytes()
    assert json.loads(before) == written

    later = copy.deepcopy(written)
    later["environment"]["created_at"] = "2031-01-01T00:00:00+00:00"
    manifest.write_pending(tmp_path, later)  # equal content counts as written
    assert (tmp_path / PENDING_NAME).read_bytes() == before

    later["content"]["git_sha"] = "f" * 40
    with pytest.raises(ConflictError, match=r"manifest\.pending\.json with other content"):
        manifest.write_pending(tmp_path, later)
    assert (tmp_path / PENDING_NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [PENDING_NAME]


def test_a_manifest_that_breaks_the_schema_is_not_written(tmp_path: Path, written: dict[str, Any]) -> None:
    written["content"]["totals"]["rows_read"] = -1
    with pytest.raises(ManifestError):
        manifest.write_pending(tmp_path, written)
    assert list(tmp_path.iterdir()) == []


def test_promotion_moves_the_pending_manifest_as_it_is(tmp_path: Path, written: dict[str, Any]) -> None:
    manifest.write_pending(tmp_path, written)
    pending = (tmp_path / PENDING_NAME).read_bytes()
    assert manifest.promote(tmp_path) == tmp_path / MANIFEST_NAME
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {MANIFEST_NAME: pending}


def test_a_promoted_manifest_is_never_overwritten(tmp_path: Path, written: dict[str, Any]) -> None:
    manifest.write_pending(tmp_path, written)
    manifest.promote(tmp_path)
    before = (tmp_path / MANIFEST_NAME).read_bytes()

    later = copy.deepcopy(written)
    later["environment"]["created_at"] = "2031-01-01T00:00:00+00:00"
    manifest.write_pending(tmp_path, later)
    manifest.promote(tmp_path)  # equal content counts as promoted
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {MANIFEST_NAME: before}

    later["content"]["git_sha"] = "f" * 40
    with pytest.raises(ConflictError, match=r"a manifest\.json with other content"):
        manifest.write_pending(tmp_path, later)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {MANIFEST_NAME: before}

    (tmp_path / PENDING_NAME).write_text(json.dumps(later))
    with pytest.raises(ConflictError, match=r"another manifest\.json"):
        manifest.promote(tmp_path)
    assert (tmp_path / MANIFEST_NAME).read_bytes() == before
    assert json.loads((tmp_path / PENDING_NAME).read_bytes()) == later


def test_diff_names_the_places_that_differ_in_the_order_of_the_first() -> None:
    assert list(manifest.diff({"a": 1, "b": {"c": 2, "x": 0}}, {"d": 4, "b": {"c": 3, "x": 0}, "a": 1})) == [
        ("content.b.c", 2, 3),
        ("content.d", None, 4),
    ]
    assert list(manifest.diff({"a": [1, {"b": 2}, 3]}, {"a": [1, {"b": 5}]})) == [
        ("content.a[1].b", 2, 5),
        ("content.a[2]", 3, None),
    ]
    assert list(manifest.diff({"a": {"b": 1}}, {"a": [1]})) == [("content.a", {"b": 1}, [1])]
    assert list(manifest.diff({"a": {}}, {})) == [("content.a", {}, None)]
    assert list(manifest.diff({"a": [1, 2]}, {"a": [1, 2]})) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2).map(float) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(before=JSON, after=JSON)
def test_no_difference_is_found_exactly_when_the_content_is_the_same(before: Any, after: Any) -> None:
    assert (not list(manifest.diff(before, after))) == (canonical_json(before) == canonical_json(after))


def test_show_prints_what_the_dataset_is_made_of(dataset: Path, written: dict[str, Any], cli: Cli) -> None:
    shown = cli("manifest", "show", dataset)
    assert (shown.returncode, shown.stderr) == (0, "")
    for said in ("synth_kd", written["content"]["config_sha256"], SHA, "labels_shift_left_1", "18 read, 1 rejected"):
        assert said in shown.stdout
    as_json = cli("manifest", "show", dataset / MANIFEST_NAME, "--json")
    assert as_json.returncode == 0
    assert json.loads(as_json.stdout) == written


def test_show_stops_where_there_is_no_dataset(tmp_path: Path, cli: Cli) -> None:
    shown = cli("manifest", "show", tmp_path)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "this is not a finished dataset" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("reader", [[], {}, [[]], 7])
def test_a_reader_that_is_no_name_is_not_shown(
    reader: Any, dataset: Path, written: dict[str, Any], tmp_path: Path, cli: Cli
) -> None:
    """`environment` may hold any JSON: it decides nothing."""
    assert "validated  through" in cli("manifest", "show", dataset).stdout
    written["environment"]["reader"] = reader
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(written))
    shown = cli("manifest", "show", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "validated" not in shown.stdout


def test_the_diff_command_exits_with_1_when_content_differs_and_only_then(
    dataset: Path, written: dict[str, Any], tmp_path: Path, cli: Cli
) -> None:
    written["environment"]["created_at"] = "2031-01-01T00:00:00+00:00"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(written))
    same = cli("manifest", "diff", dataset, other)
    assert (same.returncode, same.stdout, same.stderr) == (0, "same content\n", "")

    written["content"]["git_sha"] = "f" * 40
    other.write_text(json.dumps(written))
    different = cli("manifest", "diff", dataset, other)
    assert different.returncode == 1
    assert different.stdout == f'content.git_sha\n  - "{SHA}"\n  + "{"f" * 40}"\n'
    as_json = cli("manifest", "diff", dataset, other, "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout) == [{"path": "content.git_sha", "a": SHA, "b": "f" * 40}]


@pytest.fixture
def unversioned(tmp_path: Path) -> dict[str, str]:
    """Runs a copy of the package that no checkout, wheel or variable gives a commit: environment for `cli`."""
    package = tmp_path / "copy" / "spanloom"
    shutil.copytree(
        Path(spanloom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "_git_sha.txt")
    )
    return {"PYTHONPATH": str(package.parent), "SPANLOOM_GIT_SHA": ""}


def test_the_environment_names_the_commit_before_the_package_does(
    unversioned: dict[str, str], tmp_path: Path, cli: Cli
) -> None:
    baked = tmp_path / "copy" / "spanloom" / "_git_sha.txt"
    assert cli("--version", cwd=tmp_path, **unversioned).stdout.endswith("(unknown)\n")
    baked.write_text("a" * 40 + "\n")
    assert cli("--version", cwd=tmp_path, **unversioned).stdout.endswith(f"({'a' * 40})\n")
    said = {**unversioned, "SPANLOOM_GIT_SHA": "b" * 40}
    assert cli("--version", cwd=tmp_path, **said).stdout.endswith(f"({'b' * 40})\n")


def test_the_manifest_carries_the_commit_that_the_environment_names(source: Path, tmp_path: Path, cli: Cli) -> None:
    done = cli(
        *("build", "--source", source, "--out", tmp_path / "root", "--max-rejects", 1, "--deep", 0, "--workers", 1),
        SPANLOOM_GIT_SHA="c" * 40,
    )
    assert done.returncode == 0, done.stderr
    assert sources.content(tmp_path / "root")["git_sha"] == "c" * 40


def test_an_unknown_commit_stops_a_build_unless_allowed(source: Path, tmp_path: Path, cli: Cli) -> None:
    """Where no checkout, wheel or variable gives a commit, it is `unknown` (see above)."""
    root = tmp_path / "root"
    command = ("build", "--source", source, "--out", root, "--max-rejects", 1, "--deep", 0, "--workers", 1)
    refused = cli(*command, SPANLOOM_GIT_SHA="unknown")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the git SHA of this Spanloom is unknown" in refused.stderr
    assert "--allow-unknown-sha" in refused.stderr
    assert not root.exists()

    allowed = cli(*command, "--allow-unknown-sha", SPANLOOM_GIT_SHA="unknown")
    assert allowed.returncode == 0, allowed.stderr
    assert sources.content(root)["git_sha"] == "unknown"


def test_a_commit_that_the_manifest_could_not_carry_is_refused_before_any_work(
    source: Path, tmp_path: Path, cli: Cli
) -> None:
    refused = cli("build", "--source", source, "--out", tmp_path / "root", SPANLOOM_GIT_SHA="v1.2")
    assert refused.returncode == 1
    assert "SPANLOOM_GIT_SHA" in refused.stderr
    assert not (tmp_path / "root").exists()


def test_the_manifest_can_be_read_by_everyone_whom_the_umask_lets(dataset: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (dataset / MANIFEST_NAME, *(dataset / "train").iterdir(), *(dataset / "valid").iterdir()):
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_key_that_stands_twice_is_refused(dataset: Path, tmp_path: Path) -> None:
    """JSON readers differ in which of the two they take."""
    text = (dataset / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace("{", '{"content": {"family": "other"}, ', 1))
    with pytest.raises(manifest.ManifestError, match="duplicate key 'content' in an object"):
        manifest.read(tmp_path)
