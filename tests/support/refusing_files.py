"""File systems that refuse what Lustre, NFS, CIFS and SMB refuse: a layer of C that is loaded before a command.

In: a folder, the names of what is refused (`flock`, `fsync` of folders, `chmod`). Out: the environment of a command.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc") or shutil.which("gcc")


@cache
def _library() -> Path:
    assert COMPILER is not None
    library = Path(mkdtemp(prefix="refusing-")) / "refusing.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def refusing(folder: Path, *what: str) -> dict[str, str]:
    """The environment of a command for which the file system of `folder` refuses `what`."""
    return {
        **os.environ,
        "LD_PRELOAD": str(_library()),
        "REFUSE": ",".join(what),
        "REFUSE_BELOW": str(folder),
    }
