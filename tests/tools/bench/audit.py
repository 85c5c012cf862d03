"""`python tests/tools/bench/audit.py [MODEL]`: tokens that an audit without messages reads in a CPU second of one core.

In: a model's folder; without it a small tokenizer of our own. Out: lines with counts. Conversations of the model's own
template, proven, are repeated to one Parquet file of each size; what is measured is everything that grows with
tokens: reading, frames, findings, digests. Loading the model is timed apart.
"""

import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.auditing.auditor import Auditor, ModelOptions, make_auditor
from spanloom.auditing.duplicates import Places
from spanloom.auditing.readers.opened import open_data, read_unit
from spanloom.auditing.readers.unit import Reading
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from spanloom.families.models.samples.conversations import sample_conversations
from spanloom.law.judging import judge
from support.chat_models import write_model

SIZES = (1_000_000, 8_000_000)
"""Tokens: memory is to grow by the same at both."""


def main(model: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = model or write_model(Path(folder) / "model")
        began = time.process_time()
        auditor = make_auditor(ModelOptions(folder=model))
        print(f"model loaded and tried on its own documents: {time.process_time() - began:.2f} CPU s")
        outcomes = [prove_conversation(auditor.model, each, auditor.proving) for _, each in sample_conversations()]
        documents = [document for each in outcomes if isinstance(each, Proven) for document in each.documents]
        tokens = [document.tokens.tolist() for document in documents]
        masks = [document.mask.tolist() for document in documents]
        mean = np.mean([len(each) for each in tokens])
        for size in SIZES:
            path = Path(folder) / f"{size}.parquet"
            table = pa.table({"input_ids": tokens, "assistant_masks": masks})
            with pq.ParquetWriter(path, table.schema) as writer:
                for _ in range(0, size // sum(map(len, tokens)), 100):
                    writer.write_table(pa.concat_tables([table] * 100))
            seconds, count, grown = _in_child(path, auditor)
            print(
                f"{count:,} tokens in documents of {mean:.0f}: {seconds:.2f} CPU s, "
                f"{count / seconds:,.0f} tokens a CPU s; peak memory grew by {grown / 1024:.0f} MiB"
            )


def _in_child(path: Path, auditor: Auditor) -> tuple[float, int, int]:
    """CPU seconds, tokens, and KiB by which the peak of memory grew, in a process that audits this file alone.

    A fork of this process: its peak begins at what the parent holds, not at the parent's peak.
    """
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_measured, args=(path, auditor, sending))
    child.start()
    sending.close()
    result: tuple[float, int, int] = receiving.recv()
    child.join()
    return result


def _measured(path: Path, auditor: Auditor, sending: Connection) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    opened = open_data(path, Reading())
    began, count = time.process_time(), 0
    for unit in opened.units:
        for batch in read_unit(unit):
            found = judge(batch, auditor.tables).found
            assert not set(found) - set(auditor.unshown), found
            Places.whole(batch)
            count += batch.tokens.size
    seconds = time.process_time() - began
    sending.send((seconds, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
