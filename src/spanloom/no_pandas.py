"""Keeps pandas out of a process: if pandas is installed, pyarrow imports it before it builds an array.

In: nothing. Out: whether `import pandas` works in this process. pyarrow asks pandas whether values are pandas objects.
No command passes pandas objects, and the import takes 0.3 s. Only for a process that runs nothing but Spanloom: a
command, a worker.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import Any


def leave_out_pandas() -> None:
    """Makes `import pandas` fail from now on, as if it were not installed. No effect if it is already imported."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def allow_pandas() -> None:
    """Makes `import pandas` work again, for code that needs it."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _LeftOut:
    """Returns a spec for pandas without a loader: a check whether it is installed succeeds, an import fails."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(fullname, None) if fullname == "pandas" else None


_finder = _LeftOut()
