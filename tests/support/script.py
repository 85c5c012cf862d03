"""Runs a file as `python PATH` does: `python -m support.script PATH ARGUMENTS`, so that `support.warm` can fork it."""

import runpy
import sys


def main() -> None:
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
