"""The services of the compose file fit each other. None of them is run here: that takes Docker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from rlvr_probe_otlp import dashboards

from tests.debian import program

SHARED = Path(dashboards.__path__[0])
FOLDER = SHARED / "grafana" / "dashboards"
OF_CONTAINERS = {"jaeger": {4317, 16686}, "prometheus": {9090}, "grafana": {3000}}
"""Ports that the images listen on."""


def loaded(name: str) -> Any:
    return yaml.safe_load((SHARED / name).read_text(encoding="utf-8"))


SERVICES: dict[str, dict[str, Any]] = loaded("compose.yaml")["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_a_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_published_is_published_on_loopback_alone(name: str) -> None:
    for port in SERVICES[name]["ports"]:
        host, outside, inside = port.rsplit(":", 2)
        assert (host, outside) == ("127.0.0.1", inside)
        assert int(inside) in {*OF_CONTAINERS.get(name, {4317, 4318})}


def test_what_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                assert (SHARED / source).exists()
                assert rest.endswith(":ro")
            else:
                assert source in loaded("compose.yaml")["volumes"]


def test_what_a_service_waits_for_is_a_service() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= SERVICES.keys()


def test_a_collector_sends_to_services_that_listen_there() -> None:
    collector = loaded("collector.yaml")
    for exporter in collector["exporters"].values():
        parts = urlsplit(exporter["endpoint"])
        if parts.scheme != "http":
            parts = urlsplit(f"//{exporter['endpoint']}")
        assert parts.port in OF_CONTAINERS[str(parts.hostname)]
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= collector[kind].keys()
    used = [name for one in collector["service"]["pipelines"].values() for name in one["exporters"]]
    assert sorted(used) == sorted(collector["exporters"])
    listening = collector["receivers"]["otlp"]["protocols"].values()
    ports = {port.rsplit(":", 1)[1] for port in SERVICES["collector"]["ports"]}
    assert {one["endpoint"].rsplit(":", 1)[1] for one in listening} == ports


def test_grafana_finds_its_sources_and_dashboards() -> None:
    sources = loaded("grafana/provisioning/datasources/rlvr-probe.yaml")["datasources"]
    for source in sources:
        parts = urlsplit(source["url"])
        assert parts.port in OF_CONTAINERS[str(parts.hostname)]
    [provider] = loaded("grafana/provisioning/dashboards/rlvr-probe.yaml")["providers"]
    mounted = dict(one.split(":")[:2] for one in SERVICES["grafana"]["volumes"])
    folder = {there: here for here, there in mounted.items()}[provider["options"]["path"]]
    assert (SHARED / folder).resolve() == FOLDER
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (FOLDER / home.name).exists()


def test_the_label_that_dashboards_choose_by_comes_with_what_is_sent() -> None:
    assert "rl.run.id" in loaded("prometheus.yaml")["otlp"]["promote_resource_attributes"]
    assert "--web.enable-otlp-receiver" in SERVICES["prometheus"]["command"]


def test_a_point_of_a_metric_leads_to_its_trace() -> None:
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]
    sources = loaded("grafana/provisioning/datasources/rlvr-probe.yaml")["datasources"]
    kinds = {one["uid"]: one["type"] for one in sources}
    [metrics] = [one for one in sources if one["type"] == "prometheus"]
    # Prometheus calls the trace of an exemplar that came by OTLP so.
    [leads] = metrics["jsonData"]["exemplarTraceIdDestinations"]
    assert (leads["name"], kinds[leads["datasourceUid"]]) == ("trace_id", "jaeger")


@pytest.mark.conformance
def test_promtool_has_nothing_to_say_about_the_configuration(tmp_path: Path) -> None:
    settings = loaded("prometheus.yaml")
    # Debian's Prometheus is older than this section, and built without the receiver.
    assert settings.pop("otlp")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    promtool = program("prometheus", "usr/bin/promtool")
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yaml"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
