"""What a sample is made of: pure encoders of fixed shape.

vocabulary    1,968 tokens, by rule
draws         random numbers that belong to a game
fen           FENs → the 68 tokens of a board, whole columns at once
moves         moves → ids, in one spelling
games         a game → its sequence of tokens, and what is where
tensors       a slice of it → one sample
thinking      a position and its variations → one thinking sample
python_chess  the bridge to python-chess
"""
