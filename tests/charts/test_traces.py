"""The service of traces in the chart: secrets by name alone, probes, one writer of a file at a time."""

import pytest

from support.helm_chart import of_kind, render_set, template

pytestmark = pytest.mark.usefixtures("helm")

SQLITE, POSTGRES = "traces-sqlite-values.yaml", "traces-postgres-values.yaml"


def test_secrets_come_by_name_and_never_from_values() -> None:
    (deployment,) = of_kind(render_set(POSTGRES), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    said = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}
    assert said == {
        "SPANLOOM_SERVICE_TOKEN": {"name": "traces-secrets", "key": "bearer"},
        "SPANLOOM_TRACES_STORE": {"name": "traces-secrets", "key": "database-url"},
    }
    (deployment,) = of_kind(render_set(SQLITE), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["env"]] == ["SPANLOOM_SERVICE_TOKEN", "TRACE_MAX_BYTES"]


def test_probes_ask_what_needs_no_token() -> None:
    (deployment,) = of_kind(render_set(SQLITE), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_the_service_finds_the_pods_and_a_file_has_one_writer() -> None:
    documents = render_set(SQLITE)
    (deployment,), (service,) = of_kind(documents, "Deployment"), of_kind(documents, "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment["spec"]["replicas"] == 1


def test_values_that_would_fail_later_are_refused() -> None:
    on = ("--set", "traces.enabled=true")
    assert template(*on).returncode != 0  # no token
    named = (*on, "--set", "traces.tokenSecret.name=t")
    assert template(*named).returncode == 0
    assert template(*named, "--set", "traces.replicas=2").returncode != 0  # SQLite has one writer
    assert template(*named, "--set", "traces.env.SPANLOOM_SERVICE_TOKEN=x").returncode != 0
