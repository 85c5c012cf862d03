"""Signals of a dataset that was built again: what was scored is taken over, byte for byte, the rest is scored."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from spanloom.dataset.root.opened import content_at
from spanloom.errors import ConflictError, DatasetError
from spanloom.teacher.carry import CarriedSignals
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.signals import TeacherError
from support import warm
from support.drawn_teachers import DrawnTeacher
from support.teachers import documents, write_scored_dataset
from support.token_datasets import EOD, VOCAB_SIZE, Document, random_shards, write_dataset

K = 4


def repeated(*trained: int) -> Document:
    """One token again and again: which positions are trained shows neither in the tokens nor in the labels."""
    lossmask = np.zeros(7, np.uint8)
    lossmask[[*trained]] = 1
    return Document(np.array([*[7] * 6, EOD], np.int32), lossmask, lossmask.copy())


OLD = random_shards(0, [[5, 40, 17, 9, 30], [64, 3, 21]])
OLD[0].append(repeated(1, 4))
NEW = random_shards(7, [[12, 50]])
SHARED = (OLD[1][0], OLD[0][1], OLD[0][4])


def changed(document: Document) -> Document:
    """The same tokens; one label less is trained."""
    lossmask, span = document.lossmask.copy(), document.span.copy()
    place = np.flatnonzero(lossmask)[0]
    lossmask[place] = span[place] = 0
    return Document(document.tokens, lossmask, span)


class Counting(DrawnTeacher):
    """Counts what it is asked."""

    def __init__(self, vocabulary: int = VOCAB_SIZE) -> None:
        super().__init__(vocabulary)
        self.asked = 0

    def scores(self, documents, k, *given):  # type: ignore[no-untyped-def]
        self.asked += len(documents)
        return super().scores(documents, k, *given)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The old dataset, its signals, and a new one: in another order, with two others, and two whose masks differ."""
    folder = tmp_path_factory.mktemp("carry")
    old = write_dataset(folder / "old", {"train": OLD})
    score(old, folder / "signals", DrawnTeacher(VOCAB_SIZE), Scoring(k=K))
    shards = [[NEW[0][0], SHARED[0], changed(OLD[0][2]), repeated(2, 4)], [SHARED[1], NEW[0][1], SHARED[2]]]
    return old, folder / "signals", write_dataset(folder / "new", {"train": shards})


def carried(places: tuple[Path, Path, Path]) -> CarriedSignals:
    old, signals, new = places
    return CarriedSignals(signals, old, content_at(new))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.bin"))}


def test_bytes_are_those_of_scoring_all_again(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    new = places[2]
    teacher = Counting()
    content, _ = score(new, tmp_path / "carried", teacher, Scoring(k=K), carried=carried(places))
    again, _ = score(new, tmp_path / "again", DrawnTeacher(VOCAB_SIZE), Scoring(k=K))
    assert files_of(tmp_path / "carried") == files_of(tmp_path / "again")
    assert content == again
    assert teacher.asked == 4 + 2 + 1, "four others, the canary twice, one that is carried"
    environment = json.loads((tmp_path / "carried/teacher.json").read_text())["environment"]
    assert environment["carried"]["labels"] == sum(int(each.lossmask[:-1].sum()) for each in SHARED)


def test_without_a_teacher_others_are_listed(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    content, _ = score(places[2], tmp_path / "out", None, Scoring(k=K), carried=carried(places))
    assert content.without == {CarriedSignals.missing: 4}
    listed = [json.loads(line) for line in (tmp_path / "out/without.jsonl").read_text().splitlines()]
    assert [(each["shard"], each["sequence"]) for each in listed] == [(0, 0), (0, 2), (0, 3), (1, 1)]


def test_another_teacher_is_refused(places: tuple[Path, Path, Path], tmp_path: Path) -> None:
    named = DrawnTeacher(VOCAB_SIZE)
    named.identity = {"source": "other"}
    with pytest.raises(DatasetError, match="another teacher"):
        score(places[2], tmp_path / "out", named, Scoring(k=K), carried=carried(places))

    class Changed(DrawnTeacher):
        """Of the same name, with other weights."""

        def _score(self, document, k):  # type: ignore[no-untyped-def]
            return super()._score(
                type(document)(
                    sequence=document.sequence,
                    tokens=document.tokens[::-1].copy(),
                    positions=document.positions,
                    labels=document.labels,
                ),
                k,
            )

    with pytest.raises(TeacherError, match="otherwise than it is stored"):
        score(places[2], tmp_path / "out2", Changed(VOCAB_SIZE), Scoring(k=K), carried=carried(places))
    with pytest.raises(DatasetError, match="another k"):
        score(places[2], tmp_path / "out3", DrawnTeacher(VOCAB_SIZE), Scoring(k=K + 1), carried=carried(places))


def test_a_run_that_began_without_old_signals_is_not_gone_on_with(
    places: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    class Ends(DrawnTeacher):
        def scores(self, documents, k, *given):  # type: ignore[no-untyped-def]
            if len(documents) > 1:
                raise KeyboardInterrupt
            return super().scores(documents, k, *given)

    with pytest.raises(KeyboardInterrupt):
        score(places[2], tmp_path / "out", Ends(VOCAB_SIZE), Scoring(k=K))
    with pytest.raises(ConflictError):
        score(places[2], tmp_path / "out", DrawnTeacher(VOCAB_SIZE), Scoring(k=K), carried=carried(places))


def test_the_command(tmp_path: Path) -> None:
    """A dataset of drawn conversations, built again with some more of them."""

    def spanloom(*words: object) -> str:
        done = warm.run("spanloom", *map(str, words), env=os.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    root, model = write_scored_dataset(tmp_path / "old", conversations=12)
    spanloom("teacher", "score", root, "--model", model, "--top-k", 3, "--out", tmp_path / "signals")
    larger, other = write_scored_dataset(tmp_path / "new", conversations=20)
    shutil.rmtree(other)
    both = {tokens.tobytes() for tokens, _ in documents(root)} & {tokens.tobytes() for tokens, _ in documents(larger)}
    assert both
    out = tmp_path / "carried"
    words = ("teacher", "carry", tmp_path / "signals", "--dataset", larger, "--out", out, "--json")
    made = json.loads(spanloom(*words, "--model", model))
    wanted = sum(int(mask.sum()) for tokens, mask in documents(larger) if tokens.tobytes() in both)
    assert made["carried"] >= wanted > 0
    spanloom("teacher", "validate", out, "--dataset", larger, "--model", model, "--deep", 3)
    listed = json.loads(spanloom(*words[:-3], "--out", tmp_path / "listed", "--json", "--missing"))
    assert listed["carried"] == made["carried"]
    assert listed["without"].keys() == {CarriedSignals.missing}
