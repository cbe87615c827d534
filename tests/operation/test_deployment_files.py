"""What stands in docker/: every file is valid for the program that reads it, and fits what the ingestor does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import latest_version
from typer.main import get_command

from ingestor import cli as ingestor_cli
from ingestor.config.load import load
from ingestor.ingest.route import Times
from ingestor.observe.gauges import After, Gauges, RouteGauges, Standing
from ingestor.observe.health import State
from ingestor.observe.http import HttpServer
from ingestor.observe.metrics import Level, Levels, Metrics
from ingestor.records import TopicPartition
from spark_jobs import cli as spark_cli
from tests.support.fakes.state import FakeState
from tests.support.tools import gotool, promtool

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = sorted((DOCKER / "kubernetes").glob("*.yaml"))
MANIFESTS = [path for path in KUBERNETES if path.name not in ("config.yaml", "kustomization.yaml")]
DASHBOARD = DOCKER / "grafana" / "dashboards" / "ingestor.json"
ALERTS = DOCKER / "prometheus" / "alerts.yml"
SECRETS = {
    "S3_ACCESS_KEY": "key",
    "S3_SECRET_KEY": "secret",
    "S3_BUCKET": "lake",
    "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
    "POD_NAME": "ingestor-0",
}


def documents(*paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from yaml.safe_load_all(path.read_text())


def pods() -> dict[str, dict[str, Any]]:
    """Return the pod specification of everything that runs pods, by name."""
    found = {}
    for document in documents(*MANIFESTS):
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[document["metadata"]["name"]] = spec["template"]["spec"]
    return found


# --- configurations ---


@pytest.mark.parametrize("path", [DOCKER / "config" / "orders.yaml", DOCKER / "kubernetes" / "config.yaml"], ids=str)
def test_the_ingestor_accepts_the_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    loaded = load(path)
    assert loaded.http is not None
    assert (loaded.http.host, loaded.http.port) == ("0.0.0.0", 8080)  # noqa: S104 - inside of a container
    assert loaded.log.format == "json"


# --- compose ---


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def test_compose_reads_the_file() -> None:
    """With the very library that `docker compose` has inside: schema, references, dependencies."""
    try:
        tool = gotool.COMPOSE.build()
    except gotool.ToolUnavailableError as error:
        pytest.skip(str(error))
    done = subprocess.run([tool, DOCKER / "compose.yaml"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) >= {"kafka", "s3", "ingestor", "prometheus", "grafana"}


def test_what_compose_mounts_and_builds_is_there() -> None:
    for service in compose()["services"].values():
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (DOCKER / source).is_dir() if source.startswith(".") else source in compose()["volumes"]


def test_every_image_has_a_version() -> None:
    """Nothing changes by itself between two days."""
    built = {service["image"] for service in compose()["services"].values() if "build" in service}
    for service in compose()["services"].values():
        assert service["image"] in built or re.search(r":v?\d+\.\d+", service["image"])


def test_the_ingestor_of_compose_is_locked_down_and_has_time_to_end() -> None:
    ingestor = compose()["services"]["ingestor"]
    assert ingestor["read_only"]
    assert ingestor["cap_drop"] == ["ALL"]
    assert int(ingestor["stop_grace_period"].rstrip("s")) > Times(1, 1).stop_seconds + 5
    assert ingestor["ports"] == ["127.0.0.1:8080:8080"]


# --- Kubernetes ---


@pytest.mark.parametrize("release", ["1.28", "1.31", latest_version()])
def test_kubernetes_accepts_every_manifest(release: str) -> None:
    for document in documents(*MANIFESTS):
        kubernetes_validate.validate(document, release, strict=True)


def test_a_wrong_manifest_would_be_noticed() -> None:
    (document, *_) = documents(DOCKER / "kubernetes" / "statefulset.yaml")
    document["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, latest_version(), strict=True)


def test_kustomize_names_every_manifest() -> None:
    (kustomization,) = documents(DOCKER / "kubernetes" / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]
    made = {generator["name"] for generator in kustomization["configMapGenerator"]}
    for pod in pods().values():
        maps = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        assert maps == made


def test_kustomize_builds_it() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    done = subprocess.run([kubectl, "kustomize", DOCKER / "kubernetes"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    (config,) = (each for each in built if each["kind"] == "ConfigMap")
    for each in built:
        if each["kind"] == "StatefulSet":
            (volume,) = each["spec"]["template"]["spec"]["volumes"]
            assert volume["configMap"]["name"] == config["metadata"]["name"]
            assert each["spec"]["template"]["spec"]["containers"][0]["image"] == "ingestor:0.1.0"


def test_every_pod_is_locked_down() -> None:
    assert set(pods()) == {"ingestor", "ingestor-parse", "ingestor-compact", "ingestor-vacuum"}
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_every_pod_and_service_runs_a_command_that_there_is() -> None:
    """With options that it has: a container only fails where it runs."""
    programs = {"ingestor": ingestor_cli.app, "ingestor-spark": spark_cli.app}
    started = [(pod["containers"][0]["image"], pod["containers"][0]["args"]) for pod in pods().values()]
    services = [service for service in compose()["services"].values() if service["image"] in programs]
    started += [(service["image"], service["command"]) for service in services]
    assert len(started) == 7
    for image, (name, _config, *options) in started:
        group: Any = get_command(programs[image])
        known = {option for parameter in group.commands[name].params for option in parameter.opts}
        assert set(options) <= known


def test_probes_ask_what_is_answered() -> None:
    (container,) = pods()["ingestor"]["containers"]
    state = FakeState()
    server = HttpServer("127.0.0.1", 0, state, Metrics().registry)
    probed = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    assert probed == ["/livez", "/readyz"]
    assert all(server._pages.answer(path, "").status == 200 for path in probed)
    server.stop()


def test_a_pod_keeps_its_name_in_the_group_and_has_time_to_end() -> None:
    pod = pods()["ingestor"]
    assert pod["terminationGracePeriodSeconds"] > 2 * Times(1, 1).stop_seconds
    (container,) = pod["containers"]
    (name,) = container["env"]
    assert name == {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    (config,) = documents(DOCKER / "kubernetes" / "config.yaml")
    assert config["kafka"]["group.instance.id"] == "${POD_NAME}"


# --- Prometheus and Grafana ---


def known_series() -> set[str]:
    """Return the name of every series that an ingestor may show."""
    metrics = Metrics()
    tp = TopicPartition("t", 0)
    metrics.known("r")
    metrics.landed("r", rows={tp: 1}, payload_bytes=1, commit_seconds=1, write_seconds=1, age_seconds=1)
    metrics.lost_offsets("r", tp, 1)
    metrics.dead_letters("r", "t", 1)
    metrics.retry("r", "storage")
    metrics.rebalance("lost")
    metrics.breaker("s", "open")
    metrics.show_levels(lambda: Levels({"r": 1}, [Level("r", tp, 1, 1)]))
    route = RouteGauges(State.RUNNING, store="s", headroom=[(tp, 1)])
    Gauges(metrics.registry, lambda: Standing(True, 1, 1, {"r": route}, {"r": After(0, 0, 0)}))  # noqa: FBT003
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def dashboard_queries() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    (document,) = documents(ALERTS)
    return [rule for group in document["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_every_query_asks_for_what_there_is() -> None:
    """A dashboard over a name that does not exist is silently empty, and an alert never fires."""
    known = known_series()
    for query in [*dashboard_queries(), *(rule["expr"] for rule in rules())]:
        asked = set(re.findall(r"\bingestor_\w+", query))
        assert asked <= known, query
        assert asked or "up{" in query or "ingestor:" in query
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert {name for rule in rules() for name in re.findall(r"\bingestor:\w+", rule["expr"])} == recorded


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"\bingestor_\w+", " ".join(dashboard_queries())))
    own = {name for name in known_series() if name.startswith("ingestor_")}
    plain = {re.sub(r"_(count|sum)$", "_bucket", name) for name in own}
    assert plain <= shown


def test_the_dashboard_fits_the_screen() -> None:
    """No panel lies over another; ids are unique."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_grafana_finds_the_datasource_that_the_dashboard_names() -> None:
    (provisioned,) = documents(DOCKER / "grafana" / "provisioning" / "datasources" / "prometheus.yml")
    (source,) = provisioned["datasources"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"


def test_every_alert_has_its_page_in_the_runbook() -> None:
    """What happened, what is at risk, what to type, how to see that it is over."""
    pages = re.split(r"^## (?=Ingestor)", (ROOT / "docs" / "alerts.md").read_text(), flags=re.MULTILINE)
    by_name = {page.partition("\n")[0]: page for page in pages[1:]}
    assert list(by_name) == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        for part in ("**What happened.**", "**At risk.**", "**What to do.**", "**Over when**"):
            assert part in by_name[rule["alert"]], rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_alert_has_a_test() -> None:
    (tests,) = documents(DOCKER / "prometheus" / "alerts_test.yml")
    assert [test["name"] for test in tests["tests"]] == [rule["alert"] for rule in alerts()]
    for test in tests["tests"]:
        assert [bool(each["exp_alerts"]) for each in test["alert_rule_test"]].count(True) == 1


@pytest.fixture
def with_promtool() -> None:
    if promtool.executable() is None:
        pytest.skip(promtool.HINT)


@pytest.mark.usefixtures("with_promtool")
def test_prometheus_accepts_its_files_and_the_alerts_do_what_their_tests_say() -> None:
    assert "SUCCESS" in promtool.run("check", "config", DOCKER / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in promtool.run("test", "rules", DOCKER / "prometheus" / "alerts_test.yml")


@pytest.mark.usefixtures("with_promtool")
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    filled = [query.replace("$__rate_interval", "1m").replace("$route", ".*") for query in dashboard_queries()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(filled)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(filled)} rules found" in promtool.run("check", "rules", path)
