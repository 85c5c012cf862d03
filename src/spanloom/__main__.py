"""The `spanloom` command, and `python -m spanloom`: Ctrl-C ends it in a word, even while all is being imported."""

import gc
import sys

COLLECT_AFTER = 100_000
"""Objects made, less those freed, after which a command looks for garbage. Imports make many and leave next to none."""


def main() -> None:
    """Runs the command; see `spanloom.cli`."""
    gc.set_threshold(COLLECT_AFTER)
    try:
        from spanloom import cli, no_pandas

        no_pandas.leave_out_pandas()

        cli.main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        # The interpreter looks for garbage once more when it ends; nothing that is alive then needs to be looked at.
        gc.freeze()
        # Dataclasses are made by running text. CPython notes a KeyboardInterrupt that leaves such text, and under
        # `python -m` dies of SIGINT at its end, although it was handled. Running other text withdraws the note.
        exec("")


if __name__ == "__main__":
    main()
