"""A command refuses to write its page, list or report over what it reads."""

from pathlib import Path

import pytest

import spanloom
from conftest import Cli
from spanloom.errors import OptionError
from spanloom.options.overwriting import check_outputs
from support.audited import write_masks
from support.chat_models import write_model


def test_an_audit_does_not_write_over_its_data_its_model_or_its_messages(cli: Cli, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    data = write_masks(tmp_path / "data.parquet", [([40, 41, 42], [0, 1, 1])])
    chat = tmp_path / "chat.jsonl"
    chat.write_text("{}\n")
    before = {path: path.read_bytes() for path in (data, chat, model / "tokenizer.json")}
    given = ("audit", data, "--model", model)
    for option in ("--rows", "--html"):
        for place, more in ((data, ()), (chat, ("--messages", chat)), (model / "tokenizer.json", ())):
            done = cli(*map(str, (*given, *more, option, place)))
            assert done.returncode == 2
            assert "is not written over" in done.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    page = tmp_path / "page"
    assert "are the same file" in cli(*map(str, (*given, "--rows", page, "--html", page))).stderr
    assert {path: path.read_bytes() for path in before} == before


def test_links_stores_and_folders_are_seen(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data/a.jsonl"
    file.write_text("mine")
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    for read in (file, [str(file)], tmp_path, tmp_path / "data", f"sqlite:///{file}"):
        for written in (file, link):
            with pytest.raises(ValueError, match="is not written over"):
                check_outputs({"source": read, "html": written}, ["html"])
    check_outputs({"source": file, "html": tmp_path / "new.html", "out": tmp_path / "data"}, ["html"])
    (tmp_path / "data/report.html").write_text("page")
    check_outputs({"root": tmp_path / "data", "html": tmp_path / "data/report.html"}, ["html"])
    check_outputs({"model": tmp_path, "html": None, "rows": "-"}, ["html", "rows"])


def test_a_report_does_not_replace_the_source_of_a_dataset(tmp_path: Path) -> None:
    """The Python API and the command keep one rule."""
    source = tmp_path / "source.jsonl"
    source.write_text("mine")
    with pytest.raises(OptionError, match="is not written over"):
        spanloom.validate(tmp_path / "root", source=source, report=source)
    assert source.read_text() == "mine"
