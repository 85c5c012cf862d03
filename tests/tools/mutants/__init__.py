"""Do the tests notice when the code is wrong? Forty-four faults, each put into a copy of the sources, to be found.

    faults.py     the list: a fault is one small change of one module, and the tests that are to find it
    trial.py      one run of pytest over a copy of `src/`, with or without a fault, in a process of its own
    outcomes.py   the plugin inside that process: is the copy what is imported, which tests failed, and with what
    __main__.py   `python -m tools.mutants`: all faults, two at a time, as a table

When code or tests are moved or renamed, `faults.py` moves along. `test_faults.py` says what no longer fits.
"""
