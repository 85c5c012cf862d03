"""The exceptions of ingest, build, export and the service.

In: the fault, its place, the remedy. Out: exceptions, each with the exit code of a command that raises it.
"""

from spanloom.errors import RecordError, SpanloomError


class TraceError(RecordError):
    """Invalid traces, or a file without valid traces."""


class StoreError(SpanloomError):
    """The store is missing, cannot be reached or has another version, or one of its operations failed."""


class StoreBusyError(StoreError):
    """Another writer held the store for too long, or all connections or export slots are in use."""


class UnknownDatasetError(SpanloomError):
    """No dataset has this key."""


class InvalidManifestError(SpanloomError):
    """The manifest of a dataset of traces does not follow its schema, or is the manifest of another dataset."""
