"""Runs a file as `python PATH` does: `python -m support.script PATH ARGUMENTS`, so that `support.warm` can fork it.

`-c CODE` in the place of PATH runs code.
"""

import runpy
import sys


def main() -> None:
    del sys.argv[0]
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
        return
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
