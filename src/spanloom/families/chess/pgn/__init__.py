"""PGN files → the pretraining schema, so that people can begin with the games they have.

schema     the pretraining schema: rows, and files of them
text       PGN as text, compressed or not, cut into runs of whole games
filters    which games are taken
positions  moves and positions of a game, faster than python-chess alone
values     comments of engines → win, draw and loss
games      the text of games → rows, or why a game is left out
convert    PGN files → a folder of Parquet files
"""

from spanloom.families.chess.pgn.convert import PgnCounts, convert_pgn
from spanloom.families.chess.pgn.filters import GameFilter
from spanloom.families.chess.pgn.schema import SCHEMA, Row, row_of, write_rows

__all__ = ["SCHEMA", "GameFilter", "PgnCounts", "Row", "convert_pgn", "row_of", "write_rows"]
