"""Processes of ours that do without pandas: pyarrow imports it, where it is installed, before it makes an array.

In: nothing. Out: whether `import pandas` works in this process. pyarrow asks pandas whether the values are its own. No
command hands over any, and the import takes 0.3 s. Only for a process that runs Spanloom and nothing else: a command,
a worker.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import Any


def leave_out_pandas() -> None:
    """Lets `import pandas` fail from here on, as where it is not installed. Has no effect once it is imported."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def allow_pandas() -> None:
    """For what needs it: lets `import pandas` work again."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _LeftOut:
    """Finds pandas, so that who asks whether it is installed gets the right answer, and nothing that would load it."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(fullname, None) if fullname == "pandas" else None


_finder = _LeftOut()
