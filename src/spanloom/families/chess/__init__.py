"""Chess: games annotated by an engine, and the variations of a search → fixed-shape batches for a chess transformer.

    defaults    the defaults of all options
    task_list   the pipeline as a list of tasks
    errors      what stops
    encoding/   boards, moves, games and thinking → integers of fixed shape
    sample      games of our own making
    pgn/        PGN files → Parquet

    reading/    Parquet files or prepared games → tables, and which games an epoch takes
    loader      the datasets for torch
    training    a small transformer that learns from the batches

    manifest    spanloom_chess_v1
    build       Parquet files → prepared games
    places      both at URIs, brought to this machine
    verify/     findings in either
    inspection  samples drawn for people
    report      numbers of games
    root        prepared games as the shared commands see them
    steps/      the steps of the pipeline

python-chess (GPL-3.0, extra `chess`) is needed to make, convert, draw and check games, never to train on them.
"""
