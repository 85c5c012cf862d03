"""The log of a training run: a line for users, JSON lines, TensorBoard.

In: one record per step or evaluation. Out: stdout, `OUTPUT/log.jsonl`, `OUTPUT/tensorboard/` if requested.
"""

import json
from pathlib import Path
from typing import Any

from spanloom.errors import ArtifactError, missing_package
from spanloom.storage import parse_json, read_small, write_atomically
from spanloom.text import visible

Record = dict[str, Any]
LOG_NAME = "log.jsonl"
LOG_BYTES = 1 << 30


class TrainLog:
    """Owns the open files. A resumed run appends to them; records of steps after its checkpoint are removed first."""

    def __init__(self, output: Path, *, first_step: int, board: bool = True) -> None:
        output.mkdir(parents=True, exist_ok=True)
        path = output / LOG_NAME
        kept = [line for line in read_log(path) if line["step"] <= first_step]
        write_atomically(path, b"".join(_line(record) for record in kept))
        self._jsonl = path.open("ab", buffering=0)
        self._board: Any = None
        if board:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ModuleNotFoundError:
                raise missing_package("tensorboard", "train") from None

            self._board = SummaryWriter(str(output / "tensorboard"), purge_step=first_step + 1)

    def write(self, record: Record) -> None:
        """`record`: kind (train or valid), step (from 1), and figures; docs/training/ documents them."""
        self._jsonl.write(_line(record))
        # A record of one value of a column has its own folder: valid/language/de/final_loss
        folder = "/".join(str(record[name]) for name in ("kind", "by", "value") if name in record)
        for name, value in record.items() if self._board is not None else ():
            if name not in ("kind", "step", "by", "value") and value is not None:
                self._board.add_scalar(f"{folder}/{name}", value, record["step"])
        self.say(say(record))

    def say(self, line: str) -> None:
        print(visible(line), flush=True)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
        self._jsonl.close()


def read_log(path: Path) -> list[Record]:
    """The records of a log. A last line without a newline, cut short by a kill, is left out.

    Raises ArtifactError naming the line if a line is not a record.
    """
    remedy = f"remove this line, or the log: the run continues, and its checkpoints do not need {path.name}"
    try:
        lines = read_small(path, ArtifactError, "the log", remedy, limit=LOG_BYTES).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        record = parse_json(line, ArtifactError, "the line", where, remedy)
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise ArtifactError("the line is not a record of a step", where=where, remedy=remedy)
        records.append(record)
    return records


def say(record: Record) -> str:
    """Formats a record as one line for users."""
    spans = "  ".join(
        f"{name} {'–' if record[f'{name}_loss'] is None else format(record[f'{name}_loss'], '.4f')}"
        f" ({record[f'{name}_tokens']:,} tokens)"
        for name in (key.removesuffix("_loss") for key in record if key.endswith("_loss"))
    )
    if "by" in record:
        head = f"{record['by']} {record['value']} ({record['documents']:,} documents)"
        return f"{record['kind']} {record['step']:>6}  {head}  {spans}"
    rest = ""
    if record["kind"] == "train":
        seconds = f"  {record['seconds']:.2f} s" if "seconds" in record else ""
        rest = f"  lr {record['learning_rate']:.1e}  gradient {record['gradient_norm']:.2f}{seconds}"
    return f"{record['kind']} {record['step']:>6}  loss {record['loss']:.4f}  {spans}{rest}"


def _line(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"
