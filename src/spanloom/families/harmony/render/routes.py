"""Selects the renderer: conversations → tokens, loss mask and spans, fast or through openai-harmony alone.

In: a name and the verified asset. Out: `Renderer`. Both give the same bits as openai-harmony. Every build audits the
output of the fast renderer against it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.errors import SpanloomError
from spanloom.families.harmony.contract.profile import SYNTH_KD, Profile
from spanloom.families.harmony.tokenizer import load_encoding
from spanloom.tokenizers.o200k.loading import PACKAGE, load_ahead

if TYPE_CHECKING:  # renderers are imported only when they are loaded: most callers need only their names
    from openai_harmony import HarmonyEncoding

    from spanloom.conversations.source.structure import LabelledConversation
    from spanloom.families.harmony.render.official import RenderedBatch

RENDERERS = {"fast": ("openai-harmony", PACKAGE), "harmony": ("openai-harmony",)}
"""Name → the packages that make the tokens."""

ROWS_WORTH_LOADING = 5000
"""About this many rows of SYNTH are rendered in the time that a process takes to load its libraries and tables."""


def worker_bytes(profile: Profile) -> int:
    """Bytes of memory that each further render worker takes: libraries, tables and a part in progress.

    Measured: 305 MiB for rows of SYNTH, up to 706 MiB for conversations of ten turns.
    """
    return (305 if profile.family == SYNTH_KD.family else 706) << 20


@dataclass(frozen=True, kw_only=True)
class Renderer:
    """A renderer. `encoding`: openai-harmony's, for the audit; `audited`: whether its output is audited."""

    render: "Callable[[Sequence[LabelledConversation]], RenderedBatch]"
    encoding: "HarmonyEncoding"
    audited: bool


def load_renderer(name: str, asset: Path, profile: Profile = SYNTH_KD, *, few: int = 0) -> Renderer:
    """The renderer called `name`, made from the verified `asset`. Load it once per process: the fast one takes seconds.
    `few`: characters that are encoded without the fast encoder before it is loaded, see `text_encoder`."""
    from spanloom.families.harmony.render.fast import FastRenderer
    from spanloom.families.harmony.render.official import render_through_harmony

    check_renderer(name)
    encoding = load_encoding(asset)
    if name == "fast":
        fast = FastRenderer(encoding, asset, profile, few=few)
        return Renderer(render=fast.render, encoding=encoding, audited=True)
    return Renderer(render=partial(render_through_harmony, encoding=encoding), encoding=encoding, audited=False)


def loading_ahead(name: str, asset: Path, rows: int) -> Callable[[], object] | None:
    """A function that a worker calls before it imports anything else, for `workers.process_pool`: it starts loading the
    encoder. None for few `rows`, which may never need it."""
    return partial(load_ahead, asset) if name == "fast" and rows >= ROWS_WORTH_LOADING else None


LIBRARIES = ("openai-harmony", "tiktoken", "fastokens", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""


def renderer_version(name: str) -> str:
    """The manifest's entry for a renderer: the packages that made the tokens, with their versions."""
    check_renderer(name)
    return ", ".join(f"{package} {version(package)}" for package in RENDERERS[name])


def check_renderer(name: str) -> None:
    """Raises SpanloomError if there is no renderer with this name."""
    if name not in RENDERERS:
        raise SpanloomError(f"there is no renderer {name!r}", remedy=f"use one of: {', '.join(RENDERERS)}")
