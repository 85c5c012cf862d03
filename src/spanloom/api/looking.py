"""Documents as `spanloom inspect` shows them: `spanloom.inspect`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from spanloom.api.options import Place, local
from spanloom.dataset.document import ShownDocument
from spanloom.dataset.inspect import Selection, pick_documents
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import hub_split, tokenizer_at
from spanloom.dataset.root.places import staged_root
from spanloom.families import content_of, dataset_family
from spanloom.options.keywords import check_given_places
from spanloom.report.pages.documents import documents_page
from spanloom.report.terminal import Shown
from spanloom.storage import write_atomically
from spanloom.storage.hub import local_copy
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_hub
from spanloom.teacher.looking.shown import with_scores
from spanloom.teacher.reader import open_teacher


def inspect(
    root: Place,
    *documents: str,
    ids: Sequence[str] = (),
    pick: Literal["random", "first", "longest", "shortest"] = "random",
    count: int = 1,
    seed: int = 0,
    split: str | None = None,
    shard: int | None = None,
    without: str | None = None,
    tokenizer: Place | None = None,
    teacher: Place | None = None,
    html: Place | None = None,
) -> list[ShownDocument]:
    """Documents of the dataset at `root`, a folder or a URI, each token with its text and span. Prints nothing.
    What is at a URI is staged whole.

    documents  places, such as "train/0/17"; ids: ids in the source; without both, `count` documents are picked
    without    only documents that have no label of this span
    teacher    folder or URI of a teacher's signals: each scored token has a `score`
    html       file for a page with the documents

    Raises SpanloomError for an unknown place or id, and if the tokenizer is not found.
    """
    check_given_places({"root": root, "tokenizer": tokenizer, "teacher": teacher, "html": html})
    with local_places(root, teacher) as (folder, signals):
        content = content_of(folder, "inspect")
        named = next((name for name in content.totals.splits if hub_split(name) == split), split)
        selection = Selection(
            addresses=documents,
            ids=tuple(ids),
            pick=pick,
            count=count,
            seed=seed,
            split=named,
            shard=shard,
            without=without,
        )
        shown = shown_documents(folder, content, selection, local(tokenizer), signals)
        if html is not None:
            name = folder.resolve().name
            page = documents_page(name, shown, sequences=content.totals.sequences, shown=Shown())
            write_atomically(Path(html), page.encode())
    return shown


@contextmanager
def local_places(root: Place, teacher: Place | None, scratch: Path | None = None) -> Iterator[tuple[Path, Path | None]]:
    """The local paths of a dataset and of signals, staged whole where they are at URIs, while the block runs."""
    place, signals = os.fspath(root), None if teacher is None else os.fspath(teacher)
    with scratch_for("inspect", [place, signals], scratch) as staging:
        folder = local_copy(place) if is_hub(place) else staged_root(staging, place)
        yield folder, None if signals is None else staging.folder(signals)


def shown_documents(
    root: Path, content: Content, selection: Selection, tokenizer: Path | None, teacher: Path | None
) -> list[ShownDocument]:
    """The selected documents of the dataset at `root`; with `teacher`, a folder of signals, each with its scores."""
    signals = None if teacher is None else open_teacher(teacher, root, dataset=content)
    family = dataset_family(content.family)
    vocabulary = family.load_vocabulary(content, tokenizer_at(root, tokenizer))
    documents = pick_documents(root, content, family, selection, vocabulary)
    return documents if signals is None else [with_scores(each, signals, vocabulary) for each in documents]
