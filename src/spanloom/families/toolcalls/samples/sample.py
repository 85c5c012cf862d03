"""Small data in the formats of the five sources, with a chat template and a tokenizer, for trying the family.

In: a path or URI. Out: there the files of the folder `files` beside this module. Their texts were written for this
project; the template is like that of Llama 3.1: it adds an end token to a message that has none.
"""

from importlib.resources import files as packaged
from pathlib import Path

from spanloom.storage.scratch import write_files

SYSTEM = "You are a careful assistant with tools."
"""The system message that its AgentDojo traces have."""

_NAMES = (
    *("b4.jsonl", "completions.jsonl", "agentdojo.jsonl", "tau2/results.json", "ultrachat.jsonl", "xstest.csv"),
    *("chat_template.jinja", "tokenizer.json"),
)


def files() -> dict[str, bytes]:
    """Name → bytes of each file."""
    folder = packaged(__package__).joinpath("files")
    return {name: folder.joinpath(name).read_bytes() for name in _NAMES}


def run(*, out: str, scratch: Path | None = None) -> list[str]:
    """Writes the files to `out`, a folder or a URI. Returns their names."""
    return write_files("toolcalls-demo", files(), out, scratch, last="tokenizer.json")
