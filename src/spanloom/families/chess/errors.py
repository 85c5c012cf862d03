"""The exceptions of the chess family. They also derive from the built-in ones that users of a dataset expect."""

from spanloom.errors import SourceError, SpanloomError


class ChessError(SpanloomError, ValueError):
    """Invalid games, positions, moves or options."""


class NoFilesError(SourceError, FileNotFoundError):
    """A folder is missing, or has no Parquet file."""
