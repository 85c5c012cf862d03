"""What stops an ingest, a build, an export or the service.

In: what was wrong, where, what to do. Out: exceptions, each with the exit code of a command that ends with it.
"""

from spanloom.errors import RecordError, SpanloomError


class TraceError(RecordError):
    """Traces, or a file of them, that cannot be taken as they are."""


class StoreError(SpanloomError):
    """The store cannot be reached, is of another version, or did not take what it was given."""


class StoreBusyError(StoreError):
    """Another writer held the store for longer than this one waited."""


class UnknownDatasetError(SpanloomError):
    """No dataset has this key."""


class InvalidManifestError(SpanloomError):
    """The manifest of a dataset of traces that does not follow its schema."""
