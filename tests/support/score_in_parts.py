"""Scores a dataset in small parts: `python -m support.score_in_parts ROOT MODEL OUT`, to be killed in between."""

import sys
from pathlib import Path

from spanloom.dataset.root.opened import content_at
from spanloom.teacher import score as scoring
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.sources.hugging import HuggingFaceTeacher

PART_TOKENS = 300

if __name__ == "__main__":
    root, model, out = map(Path, sys.argv[1:])
    scoring.PART_TOKENS = PART_TOKENS
    teacher = HuggingFaceTeacher(model, vocabulary=content_at(root).tokenizer.vocab_size)
    score(root, out, teacher, Scoring(k=4))
