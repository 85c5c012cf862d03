"""Text that lies on this machine anyway, without repeats.

In: nothing but the machine. Out: blocks of text of a kind (prose, code, catalogues of many languages), in an order that
follows from the file names. Tokenizers keep caches, which repeated text would flatter: no paragraph comes twice.
"""

import gettext
import gzip
import os
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

KINDS = ("prose", "code", "catalogue")
"""`catalogue`: translations of programs' messages, which bring other scripts than Latin."""

SHARED = Path("/usr/share")
ROOTS = (
    Path(sysconfig.get_path("stdlib")),
    Path(sysconfig.get_path("purelib")),
    Path(sys.base_prefix) / "share",
    *(SHARED / name for name in ("doc", "perl", "perl5", "vim", "locale", "i18n", "info", "emacs")),
)
KIND_OF_SUFFIX = {
    **dict.fromkeys((".md", ".rst", ".txt", ".pod"), "prose"),
    **dict.fromkeys((".py", ".pl", ".pm", ".vim"), "code"),
    **dict.fromkeys((".mo", ".po"), "catalogue"),
}
PROSE_NAMES = ("METADATA", "README", "copyright", "NEWS", "changelog")
BLOCK = 20_000
LARGEST_SHARE = 100_000
"""Characters: small files are joined up to `BLOCK`, and no file gives more than `LARGEST_SHARE`."""
LONGEST_LINE = 600
"""A paragraph with a longer line is data, not text."""


class Texts:
    """Blocks of text by kind; `seen` is shared, so that no paragraph comes twice, whatever its kind."""

    def __init__(self) -> None:
        self._files = _files_by_kind()
        self._seen: set[bytes] = set()

    def blocks(self, kind: str) -> Iterator[str]:
        """At least `BLOCK` characters each, of one or more files."""
        block: list[str] = []
        size = 0
        for path in self._files[kind]:
            text = "\n\n".join(self._new_paragraphs(_read(path, kind)))[:LARGEST_SHARE]
            if text:
                block.append(text)
                size += len(text)
            if size >= BLOCK:
                yield "\n\n".join(block)
                block, size = [], 0

    def _new_paragraphs(self, paragraphs: list[str]) -> Iterator[str]:
        for paragraph in paragraphs:
            words = " ".join(paragraph.split())
            key = blake2b(words.encode(), digest_size=8).digest()
            if words and key not in self._seen and max(map(len, paragraph.splitlines())) <= LONGEST_LINE:
                self._seen.add(key)
                yield paragraph.strip("\n")


def _files_by_kind() -> dict[str, list[Path]]:
    """Files of each kind, in the order of the hashes of their names: neighbours in it come from all over."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for root in ROOTS:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if (kind := _kind(path)) and not path.is_symlink():
                    found[kind].append(path)
    for files in found.values():
        files.sort(key=lambda path: blake2b(os.fsencode(path), digest_size=8).digest())
    return found


def _kind(path: Path) -> str | None:
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.name.startswith(PROSE_NAMES):
        return "prose"
    return KIND_OF_SUFFIX.get(plain.suffix)


def _read(path: Path, kind: str) -> list[str]:
    """The paragraphs of a file; none when it cannot be read as text."""
    try:
        if path.suffix == ".mo":
            with path.open("rb") as stream:
                catalogue = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
            return [str(text) for source, text in catalogue.items() if source and text != source]
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, ValueError, LookupError, SyntaxError):
        return []
    if "\0" in text:
        return []
    if kind == "catalogue":
        text = "\n\n".join(_translations(text))
    return text.replace("\r\n", "\n").split("\n\n")


def _translations(text: str) -> Iterator[str]:
    """The translated strings of a `.po` file, near enough: quoted lines after each `msgstr`."""
    for entry in text.split("msgstr ")[1:]:
        lines = [line.strip() for line in entry.split("\n\n")[0].splitlines()]
        yield "".join(line[1:-1] for line in lines if line.startswith('"') and line.endswith('"'))
