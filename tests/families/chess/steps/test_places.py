"""The steps over a bucket give what `chess prepare` gives on one machine; the shared commands know the result."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanloom.cli import app
from spanloom.dataset.fetch import fetch
from spanloom.dataset.manifest import PENDING_NAME, files_of
from spanloom.errors import ArtifactError, ConflictError
from spanloom.families import check_manifest, data_folder
from spanloom.families.chess import manifest
from spanloom.families.chess.build import PrepareOptions, prepare
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.steps import assemble_chess, prepare_chess, validate_chess
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.staging import list_objects, read_object
from spanloom.storage.uri import Uri
from support.chess_games import BAD_FEN, folder_of_games, played_game, thinking_rows, write_games, write_thinking
from support.nightly import nightly
from support.object_stores import Place

VALID = 0.3


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    games = folder_of_games(tmp_path / "games", [5, 5, 5, 5, 5])  # five files for four shards
    rows = played_game("bad", 5, 0)
    rows[2]["fen"] = BAD_FEN
    write_games(games / "part_99.parquet", [*rows, *played_game("good", 5, 0)])
    return games, write_thinking(tmp_path / "thinking/x.parquet", thinking_rows(6)).parent


def upload(folder: Path, to: Uri) -> str:
    publish_files([Upload(path=path, uri=to / path.name) for path in sorted(folder.iterdir())])
    return str(to)


def prepare_shards(games: str | None, thinking: str | None, root: str, inventories: str, **options: Any) -> list[str]:
    said = [f"{inventories}/{shard}.json" for shard in range(4)]
    for shard, inventory in enumerate(said):
        prepare_chess.run(
            games=games,
            thinking=thinking,
            root=root,
            inventory=inventory,
            shard=shard,
            **{"valid_fraction": VALID, **options},
        )
    return said


@pytest.mark.parametrize("place", ["gs", nightly("s3")], indirect=True)
def test_steps_over_a_bucket_make_what_one_run_makes(tmp_path: Path, place: Place, sources: tuple[Path, Path]) -> None:
    at = place.uri
    games, thinking = upload(sources[0], at / "games"), upload(sources[1], at / "thinking")
    root = str(at / "root")
    inventories = prepare_shards(games, thinking, root, str(at / "run"))
    prepare_chess.run(  # a retry
        games=games, thinking=thinking, root=root, inventory=inventories[1], shard=1, valid_fraction=VALID
    )
    for _ in range(2):
        assemble_chess.run(inventories=inventories, root=root)
    assert read_object(at / "root" / "manifest.json") is None
    for _ in range(2):
        report = validate_chess.run(
            root=root, games=games, thinking=thinking, report=str(at / "report.json"), html=str(at / "report.html")
        )
        assert report.clean, report.findings
        assert report.checked["source"]
    assert json.loads(read_object(at / "report.json") or b"")["clean"]
    assert b"Games by plies" in (read_object(at / "report.html") or b"")
    assert read_object(at / "root" / PENDING_NAME) is None

    here = prepare(PrepareOptions(root=tmp_path / "here", games=sources[0], thinking=sources[1], valid_fraction=VALID))
    brought = tmp_path / "brought"
    fetched = fetch(root, brought, check=check_manifest)
    content = manifest.read(brought)["content"]
    assert content == here.manifest["content"]
    listed = list(files_of(content))
    assert fetched.files_fetched == len(listed)
    assert any(file.path.startswith("rejects/") for file in listed)
    for file in listed:
        assert (brought / file.path).read_bytes() == (here.root / file.path).read_bytes()
    names = {entry.uri.key.removeprefix(f"{at.key}/root/") for entry in list_objects(at / "root")}
    assert names == {file.path for file in listed} | {"manifest.json", "claim.json"}
    assert data_folder(root) is data_folder(str(brought)) is not None
    said = CliRunner().invoke(app, ["validate", root, "--source", games, "--source", thinking, "--json", "-q"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["checked"]["source"] == report.checked["source"]


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_another_run_does_not_get_the_root(place: Place, sources: tuple[Path, Path]) -> None:
    at = place.uri
    games = upload(sources[0], at / "games")
    prepare_shards(games, None, str(at / "root"), str(at / "run"))
    with pytest.raises(ConflictError, match="config is not the same"):
        prepare_shards(games, None, str(at / "root"), str(at / "other"), valid_fraction=0.5)


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_damage_in_a_bucket_is_found_and_nothing_is_promoted(place: Place, sources: tuple[Path, Path]) -> None:
    at = place.uri
    games = upload(sources[0], at / "games")
    inventories = prepare_shards(games, None, str(at / "root"), str(at / "run"))
    assembled = assemble_chess.run(inventories=inventories, root=str(at / "root"))
    damaged = next(files_of(assembled["content"])).path
    data = read_object(at / "root" / damaged) or b""
    replace(at / "root" / damaged, data[:-1] + bytes([data[-1] ^ 1]))
    report = validate_chess.run(root=str(at / "root"), html=str(at / "report.html"))
    assert [finding.file for finding in report.findings] == [damaged]
    assert damaged.encode() in (read_object(at / "report.html") or b"")
    assert read_object(at / "root" / "manifest.json") is None


def replace(uri: Uri, data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        publish_files([Upload(path=Path(file.name), uri=uri, replace=True)])


def test_a_shard_without_files_has_an_empty_inventory(tmp_path: Path) -> None:
    games = folder_of_games(tmp_path / "games", [4])
    inventories = prepare_shards(str(games), None, str(tmp_path / "root"), str(tmp_path))
    prepared = [len(json.loads(Path(path).read_bytes())["prepared"]) for path in inventories]
    assert prepared == [1, 0, 0, 0]
    content = assemble_chess.run(inventories=inventories, root=str(tmp_path / "root"))["content"]
    assert content["totals"]["games"]["rows_read"] == sum(shard["rows_read"] for shard in content["shards"]) > 0


def test_inventories_of_different_runs_are_refused(tmp_path: Path) -> None:
    games = folder_of_games(tmp_path / "games", [4, 4])
    inventories = prepare_shards(str(games), None, str(tmp_path / "root"), str(tmp_path))
    with pytest.raises(ArtifactError, match=r"shards \[1, 0, 2, 3\]"):
        assemble_chess.run(inventories=[inventories[i] for i in (1, 0, 2, 3)], root=str(tmp_path / "root"))
    other = json.loads(Path(inventories[2]).read_bytes())
    other["config"]["valid_fraction"] = 0.5
    Path(inventories[2]).write_text(json.dumps(other))
    with pytest.raises(ArtifactError, match="config of shard 02"):
        assemble_chess.run(inventories=inventories, root=str(tmp_path / "root"))
    Path(inventories[2]).write_text("{}")
    with pytest.raises(ArtifactError, match="no inventory"):
        assemble_chess.run(inventories=inventories, root=str(tmp_path / "root"))


def test_what_cannot_be_prepared_is_refused(tmp_path: Path, gs_place: Place) -> None:
    given: dict[str, Any] = {"root": str(tmp_path / "root"), "inventory": str(tmp_path / "i.json")}
    with pytest.raises(ChessError, match="no shard 4 of 4"):
        prepare_chess.run(games=str(tmp_path), thinking=None, shard=4, **given)
    with pytest.raises(NoFilesError, match="neither"):
        prepare_chess.run(games=None, thinking=None, shard=0, **given)
    with pytest.raises(NoFilesError, match=r"no \*\.parquet"):
        prepare_chess.run(games=str(gs_place.uri / "nothing"), thinking=None, shard=0, **given)
