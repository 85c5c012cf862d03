"""Where files are: this machine, `gs://` (google-cloud-storage) or `s3://` (boto3). Modules in the order of use:

    temporaries       what is being written, held while its process lives, and cleared where a process was killed
    local             files on this machine: hashed, written whole or not at all, published create-only
    small_files       small files of others, read with care: manifests, records
    unchanged         whether a file that was hashed is still the same when it has been read
    uri               `gs://bucket/key` taken apart and put together
    stores/           one object store each, what they have in common, and trying again
    transfer          many files at once, stopped together; which store a URI means
    staging           objects → files on this machine, checked, going on where a transfer broke off
    publishing        files → objects, create-only, checked; the same bytes count as written, other bytes are a conflict
    filling           a folder that one command fills, and clears where a killed run had begun
    filling_in_steps  the same in steps: the next run goes on after the last that ended
    claim             one object that says whose a dataset root is
    scratch           the folder of one command: local stand-ins for the places that it was given

What is imported from `spanloom.storage` itself is `temporaries`, `local` and `small_files`; the rest is imported by its
own name, where URIs are taken.
"""

from spanloom.storage.local import (
    check_writable,
    free_bytes,
    fsync_directory,
    fsync_file,
    hold_lock,
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
from spanloom.storage.small_files import parse_json, read_json, read_small
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
    "hold_lock",
    "is_regular",
    "link_file",
    "open_lock",
    "parse_json",
    "path_below",
    "publish",
    "publish_bytes",
    "read_json",
    "read_small",
    "remove_files",
    "remove_if_empty",
    "sha256_file",
    "special_file_conflict",
    "temporary_beside",
    "write_atomically",
    "written_atomically",
]
