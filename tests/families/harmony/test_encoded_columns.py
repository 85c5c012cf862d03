"""A source whose texts another program wrote as views or dictionaries: built, validated against it, shown."""

from pathlib import Path

import pyarrow as pa
import pytest

from conftest import Cli
from support import sources
from support.nightly import nightly


@pytest.mark.parametrize(
    "kind", [pa.string_view(), *map(nightly, (pa.dictionary(pa.int32(), pa.string()), pa.large_string()))], ids=str
)
def test_texts_of_another_encoding_are_built_validated_and_shown(
    cli: Cli, asset: Path, kind: pa.DataType, tmp_path: Path
) -> None:
    shards = [sources.rows(10, prefix=f"s{shard}") for shard in range(4)]
    source = sources.write_source(tmp_path / "source", shards, column_type=kind)
    root = tmp_path / "root"
    assert cli("build", "--source", source, "--out", root, "--valid-fraction", 0.1).returncode == 0
    validated = cli("validate", root, "--source", source, "--deep", "all", "--json")
    assert validated.returncode == 0, validated.stderr
    shown = cli("inspect", root, "--id", "s1-3")
    assert shown.returncode == 0, shown.stderr
    assert "Question s1-3?" in shown.stdout
