"""Whether games can be trained on.

games     findings in Parquet files, and in prepared games
legal     legal moves, by python-chess
rejects   what was left out
copies    prepared games checked against the files that they came from
manifest  what the manifest says
"""
