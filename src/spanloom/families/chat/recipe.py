"""Packed chat: how the records of transcripts become tokens, before they are packed.

In: transcripts, a tokenizer, the rules. Out: a `Recipe` for `spanloom.building`, whose parts hold one run of tokens
for each shard: those of its records, end to end. Record i of the stream goes to shard i mod T. Records are read in
order, by one process, so bytes do not depend on the number of workers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.building.assembly import build_facts
from spanloom.building.recipe import Counts, DatasetForm, Made, NoNotices, Part
from spanloom.conversations.source.rejects import Reject
from spanloom.dataset.family import Layout
from spanloom.errors import ChatError, RecordError
from spanloom.families.chat.blocks.markers import MARKER_NAMES
from spanloom.families.chat.options.pack import PackingRules as PackingRules
from spanloom.families.chat.root.blocks import ARRAY_DTYPES, FAMILY, INPUT_SCHEMA, SPAN_NAMES
from spanloom.families.chat.tokenizer import O200K_NAME, ChatTokenizer, load_tokenizer
from spanloom.families.chat.transcripts.files import OnError, read_records, text_bytes, transcript_files
from spanloom.machine import usable_cpus
from spanloom.records.files import name_below
from spanloom.storage import sha256_file
from spanloom.storage.unchanged import FileState, check_loaded, check_unchanged, file_state
from spanloom.supervision import ALIGNMENT, TokenDocuments
from spanloom.workers import OnProgress

LIBRARIES = ("tokenizers", "fastokens", "tiktoken", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""

READ, UNREADABLE = "read", "unreadable"
"""The count of records by shard; the reason of those that are not text."""

PART_SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False)])
"""`row`: the shard that a run of tokens belongs to."""

BATCH_CHARACTERS, BATCH_RECORDS = 1 << 20, 4096
"""A batch ends at the limit that is reached first: records may have any length."""

BYTES_PER_WORKER = 4 << 20
"""A worker takes about two seconds to start; a `tokenizers` file encodes about this much text in that time."""


def useful_workers(tokenizer: str, transcripts: Path) -> int:
    """The number of processes that tokenise these transcripts fastest, on the CPUs that this process may use.
    `tokenizer`: its name.

    One, this process, for the o200k vocabulary: it encodes a text faster than the text and its tokens can be sent
    between processes. A `tokenizers` file takes ten times as long or more.
    """
    if tokenizer == O200K_NAME:
        return 1
    size = sum(text_bytes(file) for file in transcript_files(transcripts))
    return max(1, min(usable_cpus(), size // BYTES_PER_WORKER))


def config_of(rules: PackingRules, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """The config that a manifest records and hashes: all options that change the bytes. Raises ChatError for invalid
    rules."""
    pad = tokenizer.markers.pad
    if rules.pad_tail and pad is None:
        raise ChatError("the tokenizer has no <|PAD|> to pad with", remedy="leave --pad-tail away")
    ids = {name: getattr(tokenizer.markers, name) for name in MARKER_NAMES}
    return {
        "input_schema": INPUT_SCHEMA,
        **{name: value for name, value in asdict(rules).items() if (name, value) != ("max_rows", None)},
        "pad_tail": pad if rules.pad_tail else None,
        "markers": {
            name: {"text": MARKER_NAMES[name], "id": token} for name, token in ids.items() if token is not None
        },
        "tokenizer_sha256": tokenizer.sha256,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
    }


@dataclass(kw_only=True)
class SourceFile:
    """A file of transcripts. `rows`: its records, counted while it is read; `size`: bytes of its text, estimated."""

    path: Path
    name: str
    size: int
    state: FileState
    sha256: str
    rows: int = 0

    def as_input(self) -> dict[str, Any]:
        """The file as the manifest lists it."""
        return {"path": self.name, "rows": self.rows, "bytes": self.state.bytes, "sha256": self.sha256}


def source_files(transcripts: Path) -> list[SourceFile]:
    """The files of transcripts, hashed."""
    return [
        SourceFile(
            path=path,
            name=name_below(path, transcripts),
            size=text_bytes(path),
            state=file_state(path),
            sha256=sha256_file(path),
        )
        for path in transcript_files(transcripts)
    ]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """All records of the transcripts, in order, as the one shard whose parts are made."""

    index: int = 0
    rows: int = 0
    where: str


@dataclass(frozen=True, kw_only=True)
class ChatRecipe(NoNotices):
    """A build of packed chat. `only`: the one shard whose tokens are made, None for all; `given`: places as given.

    `on_progress` gets bytes of text.
    """

    files: Sequence[SourceFile]
    tokenizer: Path | None
    rules: PackingRules
    on_error: OnError
    only: int | None
    build: Mapping[str, Any]
    given: Mapping[str, Any]
    on_progress: OnProgress | None = field(default=None, compare=False)

    code = "chat"
    libraries = LIBRARIES

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "files": (), "on_progress": None}

    @property
    def form(self) -> DatasetForm:
        layout = Layout(arrays=ARRAY_DTYPES, span_names=SPAN_NAMES)
        return DatasetForm(family=FAMILY, layout=layout, about=PART_SCHEMA, split_column="row", id_column="record")

    def identity(self) -> Mapping[str, Any]:
        return {
            "build": self.build,
            "inputs": [file.sha256 for file in self.files],
            "on_error": self.on_error,
            "only": self.only,
        }

    def verified(self, shard: Stream) -> Stream:
        return shard

    def check_unchanged(self, shard: Stream) -> None:  # noqa: ARG002  # there is one
        for file in self.files:
            check_unchanged(file.path, file.state, sha256=file.sha256)

    def parts(self, shard: Stream, rows: int) -> Iterator[Part]:  # noqa: ARG002  # all records are read
        """Batches of records; none spans two files. Counts the records of each file."""
        first = index = before = 0
        total = sum(file.size for file in self.files)
        faults: list[RecordError] = []
        for file in self.files:
            texts: list[str | None] = []
            file.rows = characters = read = 0

            def part(index: int, first: int, texts: list[str | None]) -> Part:
                said = [f"{fault.what} ({fault.where})" for fault in faults]
                faults.clear()
                return Part(index=index, first_row=first, rows=len(texts), key="", holds=(texts, said))

            found = read_records(
                file.path,
                on_error=self.on_error,
                first=first,
                records=self.rules.records,
                closed=self.rules.post_training,
                refused=faults.append,
            )
            left = None if self.rules.max_rows is None else self.rules.max_rows - first
            for text in islice(found, left):
                texts.append(text)
                file.rows += 1
                characters += len(text or "")
                if characters >= BATCH_CHARACTERS or len(texts) >= BATCH_RECORDS:
                    yield part(index, first, texts)
                    first, index, read = first + len(texts), index + 1, read + characters
                    texts, characters = [], 0
                    if self.on_progress is not None:
                        self.on_progress(before + min(read, file.size), total)
            if texts:
                yield part(index, first, texts)
                first, index = first + len(texts), index + 1
            before += file.size
            if self.on_progress is not None:
                self.on_progress(before, total)

    def made(self, shard: Stream, part: Part, token_budget: int | None) -> Iterator[Made]:  # noqa: ARG002
        held, faults = part.holds
        is_text = np.array([text is not None for text in held], dtype=np.bool_)
        texts = [text for text in held if text is not None]
        unread = (np.flatnonzero(~is_text) + part.first_row).tolist()
        refused = [
            self._refused(row, said)
            for row, said in zip(unread, faults, strict=True)
            if self.only in (None, row % self.rules.shards)
        ]
        encoded = _tokenizer(self.tokenizer, self.build["tokenizer"]["sha256"]).encode(texts, first=part.first_row)
        runs: list[npt.NDArray[np.int32]] = []
        numbers: list[int] = []
        counts: dict[str, Counter[str]] = {READ: Counter()}
        of_record = np.arange(part.first_row, part.first_row + is_text.size) % self.rules.shards
        for number in range(self.rules.shards) if self.only is None else (self.only,):
            ours = of_record == number
            counts[READ][str(number)] += int(ours.sum())
            run = encoded.tokens
            if self.rules.shards > 1:
                run = run[np.repeat(ours[is_text], encoded.lengths)]
            if run.size:
                runs.append(run)
                numbers.append(number)
        tokens = np.concatenate([np.empty(0, dtype=np.int32), *runs])
        nothing = np.zeros(tokens.size, dtype=np.uint8)
        yield Made(
            rows_read=is_text.size,
            documents=TokenDocuments(
                tokens=tokens,
                loss_mask=nothing,
                span_id=nothing,
                lengths=np.array([run.size for run in runs], dtype=np.int32),
            ),
            about=pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=PART_SCHEMA),
            refused=refused,
            counts=counts,
        )

    def _refused(self, row: int, said: str) -> Reject:
        number = row % self.rules.shards
        return Reject(shard=number, row=row, id=None, reason=UNREADABLE, detail=said, id_column=self.form.id_column)

    def input_of(self, shard: Stream) -> Mapping[str, Any]:  # noqa: ARG002  # all shards are made of all files
        return {"files": [file.as_input() for file in self.files]}

    def counted(self, counts: Counts) -> Mapping[str, Any]:
        return {READ: dict(counts.get(READ, Counter()))}

    def environment(self) -> Mapping[str, Any]:
        return self.given


@cache
def _tokenizer(path: Path | None, sha256: str) -> ChatTokenizer:
    """The tokenizer of this process. Raises SourceError if the file has changed since the build began."""
    tokenizer = load_tokenizer(path)
    check_loaded(tokenizer.sha256 == sha256, "the tokenizer", str(tokenizer.path))
    return tokenizer


def recipe_of(
    files: Sequence[SourceFile],
    tokenizer: ChatTokenizer,
    rules: PackingRules,
    on_error: OnError,
    *,
    given: Mapping[str, Any],
    only: int | None = None,
    on_progress: OnProgress | None = None,
) -> ChatRecipe:
    """The recipe for these transcripts. Raises ChatError for invalid rules."""
    recipe = ChatRecipe(
        files=files,
        tokenizer=tokenizer.path,
        rules=rules,
        on_error=on_error,
        only=only,
        build={},
        given=given,
        on_progress=on_progress,
    )
    facts = build_facts(
        recipe.form,
        config=config_of(rules, tokenizer),
        tokenizer={
            "name": tokenizer.name,
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "eod": tokenizer.markers.eos,
        },
        source={"schema_version": INPUT_SCHEMA},
        split=None,
    )
    return replace(recipe, build=facts)
