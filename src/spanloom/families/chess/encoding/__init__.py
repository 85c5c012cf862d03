"""The encoders: pure functions with outputs of fixed shape.

vocabulary    1,968 tokens, by rule
draws         random numbers derived from a game's key
fen           FENs → the 68 tokens of a board, whole columns at once
moves         moves → ids, in one spelling
games         a game → the layout of its token sequence
tensors       a slice of it → one sample
thinking      a position and its variations → one thinking sample
python_chess  the bridge to python-chess
"""
