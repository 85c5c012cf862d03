"""PGN files → the pretraining schema, so that users can start with their own games.

schema     the pretraining schema: rows, and files of them
text       PGN as text, compressed or not, cut into runs of whole games
filters    which games are used
positions  moves and positions of a game, faster than python-chess alone
values     engine comments → win, draw and loss
games      the text of games → rows, or the reason for leaving out a game
convert    PGN files → a folder of Parquet files
"""

from spanloom.families.chess.pgn.convert import PgnCounts, convert_pgn
from spanloom.families.chess.pgn.filters import GameFilter
from spanloom.families.chess.pgn.schema import SCHEMA, Row, row_of, write_rows

__all__ = ["SCHEMA", "GameFilter", "PgnCounts", "Row", "convert_pgn", "row_of", "write_rows"]
