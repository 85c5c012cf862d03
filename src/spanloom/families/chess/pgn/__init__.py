"""PGN files → the pretraining schema, so that users can start with their own games.

schema     the pretraining schema: rows, and files of them
text       PGN as text, compressed or not, cut into runs of whole games
tokens     the text of PGN → its tokens
notation   a move in algebraic notation → what it says
position   a position of standard chess: legal moves in, FENs out
values     engine comments → win, draw and loss
games      the tokens of games → rows, or the reason for leaving out a game
convert    PGN files → a folder of Parquet files
"""

from spanloom.families.chess.options import GameFilter
from spanloom.families.chess.pgn.convert import PgnCounts, convert_pgn
from spanloom.families.chess.pgn.schema import SCHEMA, Row, row_of, write_rows

__all__ = ["SCHEMA", "GameFilter", "PgnCounts", "Row", "convert_pgn", "row_of", "write_rows"]
