"""The files of one split of one shard, checked against the manifest: all by size, indexes also by hash.

In: a manifest's `content`, the root. Out: paths with their entries, or an error that names the file. The `.bin` files
are not hashed here: that takes minutes, and validation does it.
"""

from collections.abc import Iterator
from pathlib import Path

from spanloom.dataset.manifest import MANIFEST_NAME, Content, ListedFile
from spanloom.dataset.root.layout import array_prefix
from spanloom.errors import DatasetError
from spanloom.storage import sha256_file

_REBUILD = "build the dataset again, or fetch it again; `spanloom validate ROOT` says all that is wrong"


def shard_files(content: Content, root: Path, split: str, shard: int) -> Iterator[tuple[Path, ListedFile]]:
    """The `.idx` and `.bin` of all arrays, with their entries. Raises DatasetError for a file that is not listed."""
    prefixes = [array_prefix(root, split, shard, name) for name in content.arrays]
    for path in (prefix.with_name(prefix.name + suffix) for prefix in prefixes for suffix in (".idx", ".bin")):
        entry = content.files_by_path.get(f"{split}/{path.name}")
        if entry is None:
            raise DatasetError(f"{root / MANIFEST_NAME} does not list this file", where=str(path))
        yield path, entry


def check_size(path: Path, entry: ListedFile) -> None:
    """Raises DatasetError if a file is missing or has another size."""
    if not path.is_file():
        raise DatasetError("a file of the dataset is missing", where=str(path), remedy=_REBUILD)
    if (size := path.stat().st_size) != entry.bytes:
        raise DatasetError(
            f"{size:,} bytes, the manifest says {entry.bytes:,}: supervision would not match its tokens",
            where=str(path),
            remedy=_REBUILD,
        )


def check_hash(path: Path, entry: ListedFile) -> None:
    """Raises DatasetError if an index's sha256 differs from its entry."""
    if sha256_file(path) != entry.sha256:
        raise DatasetError("this index is of another build than the manifest", where=str(path), remedy=_REBUILD)
