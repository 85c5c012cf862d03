"""The vocabulary of a packed chat dataset: a token's bytes, or its name if it is special.

In: a manifest's tokenizer section, and the path of the tokenizer. Out: `Vocabulary`, to show blocks to people.
"""

from pathlib import Path

from spanloom.dataset.manifest import TokenizerEntry
from spanloom.errors import ChatError
from spanloom.families.chat.blocks.markers import CONTROL_STRINGS
from spanloom.families.chat.tokenizer import O200K_NAME, ChatTokenizer, load_tokenizer
from spanloom.tokenizers.json_file import JsonVocabulary, load_json_tokenizer
from spanloom.tokenizers.o200k import vocabulary as o200k
from spanloom.tokenizers.token_texts import TokenTexts, texts_of_pieces, token_texts


def load_vocabulary(made: TokenizerEntry, tokenizer: Path | None) -> "JsonVocabulary | o200k.O200kVocabulary":
    """The vocabulary of the tokenizer that a manifest records as `made`, read from its present path."""
    loaded = tokenizer_of(made, tokenizer)
    if loaded.name != O200K_NAME:
        return JsonVocabulary(load_json_tokenizer(loaded.path, extra="chat"), CONTROL_STRINGS)
    names = {token: name for name, token in loaded.as_dict()["markers"].items()}
    return o200k.load_vocabulary(loaded.path, names)


def texts_of(tokenizer: ChatTokenizer) -> TokenTexts | None:
    """The text of tokens, None where it cannot be read off them."""
    if tokenizer.name != O200K_NAME:
        return token_texts(tokenizer.path)
    pieces = o200k.load_vocabulary(tokenizer.path, {}).pieces
    return texts_of_pieces(pieces, tokenizer.as_dict()["markers"])


def tokenizer_of(made: TokenizerEntry, tokenizer: Path | None) -> ChatTokenizer:
    """The tokenizer at `tokenizer`; None is the o200k asset. It must be the one that a manifest records as `made`.

    Raises ChatError if it is another.
    """
    loaded = load_tokenizer(tokenizer)
    if loaded.sha256 != made.sha256 or loaded.markers.eos != made.eod:
        raise ChatError(
            f"the tokens are of another tokenizer: {made.name}, sha256 {made.sha256}; this is {loaded.name}, "
            f"sha256 {loaded.sha256}",
            where=str(loaded.path),
            remedy="name the one that the dataset was packed with: --tokenizer",
        )
    return loaded
