"""File access on this machine, in `gs://` (google-cloud-storage), `s3://` (boto3) and `hf://` (huggingface_hub).

Modules in the order of use:

    locks             locks of folders, also where the file system has none
    temporaries       temporary files, locked while their process lives, and cleared after a process was killed
    local             files on this machine: hashed, written whole or not at all, published create-only
    small_files       defensive reading of small files that others may have written: manifests, records
    unchanged         detects that a file changed between its hash and the end of reading it
    uri               `gs://bucket/key` and the like, parsed and formatted
    stores/           one module for each object store, their common parts, and retries
    transfer          many files at once, stopped together; the store of a URI
    staging           objects → files on this machine, verified; interrupted transfers are resumed
    publishing        files → objects, create-only, verified; existing other bytes are a conflict
    folders/          folders that one command fills, at once, in steps, or again
    hub               `hf://` for code that reads folders: a copy in the user's cache; uploads
    claim             one object that names the build that owns a dataset root
    scratch           the scratch folder of one command: local copies of its remote inputs and outputs

`spanloom.storage` itself exports `locks`, `temporaries`, `local` and `small_files`. Code that handles URIs imports the
other modules by name.
"""

from spanloom.storage.local import (
    check_writable,
    free_bytes,
    fsync_directory,
    fsync_file,
    is_regular,
    link_file,
    open_lock,
    path_below,
    publish,
    publish_bytes,
    remove_files,
    remove_if_empty,
    sha256_file,
    special_file_conflict,
    write_atomically,
    written_atomically,
)
from spanloom.storage.locks import held, lock_names
from spanloom.storage.small_files import parse_json, read_json, read_object, read_small
from spanloom.storage.temporaries import (
    TEMPORARY_MARK,
    clear_temporaries,
    clear_temporaries_of,
    discard,
    temporary_beside,
)

__all__ = [
    "TEMPORARY_MARK",
    "check_writable",
    "clear_temporaries",
    "clear_temporaries_of",
    "discard",
    "free_bytes",
    "fsync_directory",
    "fsync_file",
    "held",
    "is_regular",
    "link_file",
    "lock_names",
    "open_lock",
    "parse_json",
    "path_below",
    "publish",
    "publish_bytes",
    "read_json",
    "read_object",
    "read_small",
    "remove_files",
    "remove_if_empty",
    "sha256_file",
    "special_file_conflict",
    "temporary_beside",
    "write_atomically",
    "written_atomically",
]
