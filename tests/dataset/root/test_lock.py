"""A dataset root is held by one build at a time."""

from pathlib import Path

import pytest

from spanloom.dataset.root.lock import held_root
from spanloom.errors import ConflictError


def test_while_a_build_holds_a_root_no_other_gets_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for _ in range(2):  # when the first has let go, the next one gets it
        with held_root(root) as work:
            with (
                pytest.raises(ConflictError, match="another build is running into this root") as refusal,
                held_root(root),
            ):
                pass
            assert refusal.value.where == str(root)
            assert work.is_dir(), "the one that was refused leaves the folder of the other alone"
