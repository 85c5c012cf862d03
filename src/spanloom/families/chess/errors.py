"""The exceptions of the chess family. Each also derives from the built-in exception that users of a dataset expect."""

from spanloom.errors import SourceError, SpanloomError


class ChessError(SpanloomError, ValueError):
    """Invalid games, positions, moves or options."""


class NoFilesError(SourceError, FileNotFoundError):
    """A folder is missing, or has no Parquet file."""
