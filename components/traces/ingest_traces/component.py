"""Traces, step 1: records in a bucket → a store in one file.

In: the URI of a file or of a folder of files, in any form that `spanloom traces ingest` reads. Out: the store (SQLite);
the numbers of lines that are not traces.
"""

from components.of_task import component_of

ingest_traces = component_of("traces.task_list", "ingest-traces")
