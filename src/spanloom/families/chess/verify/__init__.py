"""Validation of games before training.

games     checks of Parquet files and of prepared games
legal     legality of moves, by python-chess
rejects   the games and rows left out
copies    prepared games against their source files
manifest  the manifest
"""
