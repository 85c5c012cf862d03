"""The benchmark: how fast is a build, against the plain route, and does its memory follow the number of rows?

Run it with `PYTHONPATH=tests python -m bench --help`. It asserts nothing about time; people read its table.

    texts.py      text that lies on this machine, every paragraph once
    corpus.py     → sources: conversations for speed, tiny rows for memory
    plain.py      the plain route, the baseline: the openai-harmony wrapper, lists, one add_item a row
    processes.py  a command in a process of its own: seconds, stages, memory of parent and workers
    speed.py      plain route and `spanloom build` at two sizes → marginal tokens a second
    memory.py     `spanloom build` at two sizes of tiny rows → bytes a row
    stages.py     reading, parsing, rendering, writing, each alone
    tables.py     what a person reads
"""
