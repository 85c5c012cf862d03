"""The spans of a SYNTH KD dataset: which part of the answer a token belongs to."""

SPAN_ANALYSIS, SPAN_FINAL = 1, 2
SPAN_NAMES = ("context", "analysis", "final")
"""`SPAN_NAMES[span_id]`: context carries no loss; analysis is the reasoning; final is the answer."""
