"""What all tests that compile pipelines share."""

import inspect
import sys
import traceback
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _stacks_without_source() -> Iterator[None]:
    """kfp looks for its caller's name in `inspect.stack`, which reads source lines for each frame.

    To find them it goes through all imported modules. After transformers and its like a pipeline takes four seconds of
    CPU time, instead of 0.1. Fixtures of modules compile too.
    """

    def stack(_: int = 1) -> list[inspect.FrameInfo]:
        frames = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))]
        return [
            inspect.FrameInfo(each, each.f_code.co_filename, each.f_lineno, each.f_code.co_name, None, None)
            for each in frames
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "stack", stack)
        yield
