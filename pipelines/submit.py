"""A run of a compiled pipeline on a cluster: `make submit`.

In: the API address of Kubeflow Pipelines, a compiled pipeline, parameters as `NAME=VALUE`. Out: a run; its id and
address are printed. Credentials are the ones that kfp's own client finds.
"""

import argparse
import sys
from pathlib import Path

import kfp
from kfp import components

from pipelines.arguments import run_arguments


def main() -> None:
    parser = argparse.ArgumentParser(description="Submit a compiled pipeline to Kubeflow Pipelines.")
    parser.add_argument("--endpoint", required=True, help="address of the Kubeflow Pipelines API")
    parser.add_argument("--namespace", help="the profile's namespace, on a Kubeflow with several users")
    parser.add_argument("--experiment", default="spanloom")
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/synth_kd.yaml"))
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    try:
        arguments = run_arguments(components.load_component_from_file(str(options.pipeline)), options.parameters)
    except ValueError as fault:
        sys.exit(f"error: {fault}")
    client = kfp.Client(host=options.endpoint, namespace=options.namespace)
    run = client.create_run_from_pipeline_package(
        str(options.pipeline), arguments=arguments, experiment_name=options.experiment, namespace=options.namespace
    )
    print(f"{run.run_id}  {options.endpoint.rstrip('/')}/#/runs/details/{run.run_id}")


if __name__ == "__main__":
    main()
