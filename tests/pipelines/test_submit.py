"""What `make submit` sends, held against a server that speaks as much of the API as the client asks for."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from conftest import REPOSITORY

API = "/apis/v2beta1"


class Kubeflow(ThreadingHTTPServer):
    """Keeps the bodies of what was posted, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Kubeflow

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        answers = {f"{API}/healthz": {"multi_user": False}, f"{API}/experiments": {"experiments": []}}
        self._answer(answers.get(path, {}))

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        self.server.posted[path] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = {
            f"{API}/experiments": {"experiment_id": "e-1", "display_name": "spanloom"},
            f"{API}/runs": {"run_id": "r-1", "experiment_id": "e-1"},
        }
        self._answer(answers.get(path, {}))

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def kubeflow() -> Iterator[Kubeflow]:
    with Kubeflow() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def submit(kubeflow: Kubeflow, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pipelines.submit", "--endpoint", kubeflow.address, *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_carries_the_pipeline_its_placement_and_typed_parameters(kubeflow: Kubeflow) -> None:
    done = submit(kubeflow, "source_uri=gs://b/source", "dataset_root=gs://b/kd", "max_rows=1000", "valid_fraction=0.1")
    assert done.returncode == 0, done.stderr
    assert f"r-1  {kubeflow.address}/#/runs/details/r-1" in done.stdout
    run = kubeflow.posted[f"{API}/runs"]
    assert run["experiment_id"] == "e-1"
    given = run["runtime_config"]["parameters"]
    assert given == {
        "source_uri": "gs://b/source",
        "dataset_root": "gs://b/kd",
        "max_rows": "1000",
        "valid_fraction": 0.1,
    }
    spec = run["pipeline_spec"]
    assert "kubernetes" in spec["platform_spec"]["platforms"]
    assert len(spec["pipeline_spec"]["root"]["dag"]["tasks"]) == 16


def test_a_wrong_parameter_is_refused_before_anything_is_sent(kubeflow: Kubeflow) -> None:
    done = submit(kubeflow, "source_uri=gs://b/source", "dataset_roots=gs://b/kd")
    assert done.returncode == 1
    assert "error: the pipeline has no parameter 'dataset_roots'" in done.stderr
    assert kubeflow.posted == {}
