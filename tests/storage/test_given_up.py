"""The exit code 75 of a store that was given up: a scheduler may try these again, and nothing else."""

import os
import pickle
import socket
from pathlib import Path

from spanloom.errors import EXIT_FAILURE, EXIT_TEMPORARY, StorageError, StoreGivenUpError
from support import warm
from support.object_stores import CREDENTIALS, REGION, Place


def fetched(uri: str, directory: Path, environment: dict[str, str]) -> warm.Done:
    return warm.run("spanloom", "fetch", uri, directory, env={**os.environ, **environment})


def test_a_store_that_is_not_there_ends_with_75_and_a_missing_dataset_with_1(tmp_path: Path, gs_place: Place) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{unused.getsockname()[1]}", "AWS_DEFAULT_REGION": REGION}
        environment |= {name.upper(): value for name, value in CREDENTIALS.items()}
        environment["SPANLOOM_STORAGE_DEADLINE"] = "0.5"
        gone = fetched("s3://bucket/dataset", tmp_path / "gone", environment)
    assert gone.returncode == EXIT_TEMPORARY == 75, gone.stderr
    assert "no usable answer" in gone.stderr
    empty = fetched(str(gs_place.uri), tmp_path / "empty", gs_place.environment)
    assert empty.returncode == EXIT_FAILURE, empty.stderr


def test_the_code_survives_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(StoreGivenUpError("what", where="where", remedy="remedy")))
    assert isinstance(error, StorageError)
    assert error.exit_code == EXIT_TEMPORARY
