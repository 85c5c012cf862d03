"""The rows of a part that become a document each, for a source that is one file.

In: the rows in order, each with its document or the reason that it has none. Out: the documents that are written, the
rows that are refused.
"""

from typing import Generic, TypeVar

from spanloom.conversations.source.rejects import Reason, Reject, too_long

Document = TypeVar("Document")


class KeptRows(Generic[Document]):
    """`documents`: those that are kept, each with the number of its row; `refused`: the other rows that are read.

    `longest`: the most tokens of a document, EOD included; longer ones are refused. `budget`: the most tokens of all
    documents together. None for any number.
    """

    def __init__(self, shard: int, id_column: str, *, longest: int | None, budget: int | None) -> None:
        self._shard, self._id_column = shard, id_column
        self._longest, self._left = longest, budget
        self.documents: list[tuple[int, Document]] = []
        self.refused: list[Reject] = []

    @property
    def read(self) -> int:
        """How many rows are read."""
        return len(self.documents) + len(self.refused)

    def refuse(self, row: int, name: str | None, reason: str, detail: str = "") -> None:
        self.refused.append(
            Reject(shard=self._shard, row=row, id=name, reason=reason, detail=detail, id_column=self._id_column)
        )

    def keep(self, row: int, name: str, document: Document, tokens: int) -> bool:
        """Reads the next row; False if its document would exceed the budget, so that it is not read."""
        if self._longest is not None and tokens > self._longest:
            self.refuse(row, name, Reason.TOO_LONG, too_long(tokens, self._longest))
            return True
        if self._left is not None:
            if tokens > self._left:
                return False
            self._left -= tokens
        self.documents.append((row, document))
        return True
