"""Where files lie: this machine, `gs://` (google-cloud-storage) or `s3://` (boto3). Modules in the order of use:

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

What is imported from `spanloom.storage` itself is `local` and `small_files`; the rest is imported by its own name,
where URIs are taken.
"""

from spanloom.storage.local import TEMPORARY_MARK as TEMPORARY_MARK
from spanloom.storage.local import check_writable as check_writable
from spanloom.storage.local import clear_temporaries as clear_temporaries
from spanloom.storage.local import clear_temporaries_of as clear_temporaries_of
from spanloom.storage.local import free_bytes as free_bytes
from spanloom.storage.local import fsync_directory as fsync_directory
from spanloom.storage.local import fsync_file as fsync_file
from spanloom.storage.local import hold_lock as hold_lock
from spanloom.storage.local import is_regular as is_regular
from spanloom.storage.local import link_file as link_file
from spanloom.storage.local import link_in_the_way as link_in_the_way
from spanloom.storage.local import open_lock as open_lock
from spanloom.storage.local import path_below as path_below
from spanloom.storage.local import publish as publish
from spanloom.storage.local import publish_bytes as publish_bytes
from spanloom.storage.local import remove_files as remove_files
from spanloom.storage.local import remove_if_empty as remove_if_empty
from spanloom.storage.local import sha256_file as sha256_file
from spanloom.storage.local import temporary_beside as temporary_beside
from spanloom.storage.local import write_atomically as write_atomically
from spanloom.storage.local import written_atomically as written_atomically
from spanloom.storage.small_files import parse_json as parse_json
from spanloom.storage.small_files import read_json as read_json
from spanloom.storage.small_files import read_small as read_small
