"""Submits a run of a compiled pipeline to a cluster: `make submit`.

In: the API address of Kubeflow Pipelines, a compiled pipeline, parameters as `NAME=VALUE`, and for a login a token or a
cookie in a file. Out: a run; its id and address are printed. Without a run id the exit code is 1.
"""

import argparse
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import kfp
import kfp_server_api
import urllib3
from kfp import components

from pipelines.arguments import run_arguments
from pipelines.endpoint import SubmitError, answer_without_login, file_value, probe

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""In a pod: its own namespace, which kfp's client uses if no namespace is given."""

CLIENT_SETTINGS = Path("~/.config/kfp/context.json").expanduser()


@dataclass(frozen=True, kw_only=True)
class Target:
    """The API and the login. `endpoint` begins with http:// or https://; `ca_file` is the PEM file of its CA."""

    endpoint: str
    namespace: str | None = None
    token: str | None = None
    cookie: str | None = None
    ca_file: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that carry the login."""
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return bearer | ({} if self.cookie is None else {"Cookie": self.cookie})


def client_has_login(target: Target) -> bool:
    """Whether kfp's client has a login of its own, which our request would lack: Google's proxy or IAP, or a cookie or
    header in the client's own settings."""
    if target.token or target.cookie:
        return False
    try:
        settings = json.loads(CLIENT_SETTINGS.read_text())
    except (OSError, ValueError):
        settings = {}
    return (
        "KF_PIPELINES_IAP_OAUTH2_CLIENT_ID" in os.environ
        or target.endpoint.endswith(".googleusercontent.com")
        or any(name.startswith("client_authentication_") for name in settings)
    )


def submit(
    target: Target,
    pipeline: Path,
    arguments: dict[str, object],
    *,
    experiment: str,
    service_account: str | None,
    pipeline_root: str | None,
) -> str:
    """Creates the run and returns its id.

    Raises SubmitError if the API cannot be reached, requires a login, refuses, or answers without a run id. Nothing is
    retried.
    """
    if not client_has_login(target):
        health = probe(target.endpoint, target.headers, target.ca_file)
        if health.get("multi_user") is True and target.namespace is None and not NAMESPACE_FILE.exists():
            raise SubmitError("this Kubeflow has several users, and no namespace was given", "add --namespace NAME")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the client needs an API of version 2
            client = kfp.Client(
                host=target.endpoint,
                namespace=target.namespace,
                existing_token=target.token,
                cookies=target.cookie,
                ssl_ca_cert=str(target.ca_file) if target.ca_file else None,
            )
        run = client.create_run_from_pipeline_package(
            str(pipeline),
            arguments=arguments,
            experiment_name=experiment,
            namespace=target.namespace,
            service_account=service_account,
            pipeline_root=pipeline_root,
        )
    except kfp_server_api.ApiException as refusal:
        raise answer_without_login(target.endpoint, refusal.status, str(refusal.body or refusal.reason)) from refusal
    except (urllib3.exceptions.HTTPError, ValueError, AttributeError) as fault:
        # On answers in an unknown form, kfp's client raises Python errors.
        raise SubmitError(
            f"the API did not answer as Kubeflow Pipelines does: {fault}", "look at --endpoint"
        ) from fault
    if not run.run_id:
        raise SubmitError("the API answered without a run id: no run was created", "look at --endpoint and the login")
    return str(run.run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description="Submit a compiled pipeline to Kubeflow Pipelines.")
    parser.add_argument(
        "--endpoint", required=True, help="address of the Kubeflow Pipelines API: http://… or https://…"
    )
    parser.add_argument("--namespace", help="the profile's namespace, on a Kubeflow with several users")
    parser.add_argument(
        "--service-account", help="the Kubernetes service account of the pods; else the cluster's default"
    )
    parser.add_argument("--pipeline-root", help="where Kubeflow keeps artifacts of the run: s3://… or gs://…")
    parser.add_argument("--token-file", type=Path, help="a file with a bearer token, sent as Authorization: Bearer …")
    parser.add_argument(
        "--cookie-file", type=Path, help="a file with the login's cookie, such as authservice_session=…"
    )
    parser.add_argument("--ca-file", type=Path, help="PEM file with the CA of the endpoint's certificate")
    parser.add_argument("--experiment", default="spanloom")
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/synth_kd.yaml"))
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    try:
        arguments = run_arguments(components.load_component_from_file(str(options.pipeline)), options.parameters)
        target = Target(
            endpoint=options.endpoint.rstrip("/"),
            namespace=options.namespace,
            token=file_value(options.token_file, "--token-file"),
            cookie=file_value(options.cookie_file, "--cookie-file"),
            ca_file=options.ca_file,
        )
        run_id = submit(
            target,
            options.pipeline,
            arguments,
            experiment=options.experiment,
            service_account=options.service_account,
            pipeline_root=options.pipeline_root,
        )
    except (ValueError, SubmitError) as fault:
        sys.exit(f"error: {fault}")
    print(f"{run_id}  {target.endpoint}/#/runs/details/{run_id}")


if __name__ == "__main__":
    main()
