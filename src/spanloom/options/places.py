"""Places, as paths or URIs, that several steps read or write."""

from typing import Annotated

from spanloom.options.option import place

Root = Annotated[str, place("Root of the dataset, a folder or a URI.")]
Inventories = Annotated[list[str], place("A shard's inventory; give one for each shard, in order.", "--inventory")]
Inventory = Annotated[str, place("File or URI for the shard's inventory.")]
Report = Annotated[str | None, place("File or URI for the report (JSON); replaces an existing one.", writes=True)]
HtmlPlace = Annotated[str | None, place("File or URI for the report (a page); replaces an existing one.", writes=True)]
TokenizerPlace = Annotated[
    str | None,
    place(
        "The asset o200k_base.tiktoken, its folder, or a URI of either. Default: $O200K_HARMONY_VOCAB_PATH, "
        "$TIKTOKEN_ENCODINGS_BASE, ~/.cache/spanloom, then data/tokenizer."
    ),
]
