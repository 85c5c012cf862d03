"""Method S: the run's texts are replaced by words (sentinels). Putting the texts back must give F again.

In: P, F and F with sentinels (`fields.Sentinels`). Out: the end of the last text in F; numbers do not count. Raises
RefusedError: `structure_depends_on_text` if the text around them changes, `text_dropped` for a missing number.

    F'  …assistant\\n Qa0z <|im_end|>     F  …assistant\\n Paris. <|im_end|>
"""

import json
import re
from itertools import chain

from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import written_number
from spanloom.families.models.prove.fields import Sentinels
from spanloom.families.models.prove.refusals import REMEDIES, STRUCTURE_DEPENDS_ON_TEXT, TEXT_DROPPED


def end_of_texts(prompt: str, whole: str, other: str, sentinels: Sentinels) -> int:
    """The end of the last text in F, in characters; the end of P if there is no text."""
    if not other.startswith(prompt):
        raise _refused("the prompt is another one")
    words = [*sentinels.texts, *sentinels.numbers]
    if not words:
        if other != whole:
            raise _refused("the text is another one")
        return len(prompt)
    # One number may be a prefix of another: the longest first.
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    at = last = len(prompt)
    end = len(prompt)
    seen: set[str] = set()
    for match in pattern.finditer(other, len(prompt)):
        literal = other[end : match.start()]
        if not whole.startswith(literal, at):
            raise _refused(f"{literal[:40]!r} is not where it is")
        at += len(literal)
        end = match.end()
        follows = pattern.search(other, end)
        behind = other[end : follows.start() if follows else len(other)]
        at += len(_put_back(match[0], sentinels, whole, at, behind))
        seen.add(match[0])
        if match[0] in sentinels.texts:
            last = at
    if whole[at:] != other[end:]:
        raise _refused(f"{other[end:][:40]!r} is not where it is")
    if missing := [sentinels.texts[word] for word in sentinels.texts if word not in seen]:
        raise _refused(f"{missing[0][:40]!r} is not written where another text is")
    # A float is compared without its `.0`.
    written = {word.removesuffix(".0") for word in seen}
    dropped = [value for word, value in sentinels.numbers.items() if word.removesuffix(".0") not in written]
    if dropped:
        raise RefusedError(TEXT_DROPPED, f"the template drops the value {dropped[0]}", REMEDIES[TEXT_DROPPED])
    return last


def _put_back(word: str, sentinels: Sentinels, whole: str, at: int, behind: str) -> str:
    """What F has in place of a sentinel, before the text `behind`: the original text as it is, or as JSON."""
    texts = _ways(sentinels.texts[word]) if word in sentinels.texts else written_number(sentinels.numbers[word])
    for text in texts:
        if whole.startswith(text + behind, at):
            return text
    raise _refused(f"{texts[0][:40]!r} is not written as other texts are")


def _ways(text: str) -> tuple[str, ...]:
    escaped = [json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True)]
    twice = [json.dumps(once, ensure_ascii=False)[1:-1] for once in escaped]
    return tuple(dict.fromkeys(chain([text], escaped, twice)))


def _refused(what: str) -> RefusedError:
    return RefusedError(
        STRUCTURE_DEPENDS_ON_TEXT,
        f"with other texts the template writes another frame: {what}",
        REMEDIES[STRUCTURE_DEPENDS_ON_TEXT],
    )
