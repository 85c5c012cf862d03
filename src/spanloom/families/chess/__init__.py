"""Chess: games annotated by an engine, and the variations of a search → fixed-shape batches for a chess transformer.

    defaults    the defaults of all options
    options     the options of commands and steps
    task_list.toml  the pipeline as a list of tasks
    errors      the exceptions
    encoding/   boards, moves, games and thinking rows → integer arrays of fixed shape
    sample      the packaged games
    pgn/        PGN files → Parquet

    reading/    Parquet files or prepared games → tables, and the order of games in an epoch
    loader      the datasets for torch

    manifest    spanloom_chess_v1
    build       Parquet files → prepared games
    places      stages Parquet files and prepared games from URIs
    verify/     validation of Parquet files and prepared games
    inspection  samples shown as boards and tokens
    report      statistics of games
    root        the interface of prepared games to the shared commands
    steps/      the steps of the pipeline

python-chess (GPL-3.0, extra `chess`) is needed to draw and check games, never to convert PGN or to train.
"""
