"""The real thing: Prometheus scrapes a node by the shipped configuration; panels and alerts find their figures."""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml

from muster.client import Admin, Consumer, Producer
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience
from tests.support.stubs import GroupCoordinatorStub

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
PATIENCE_S = 60
VARIABLES = {"$__rate_interval": "1m", "$consumergroup": ".*", "$topic": ".*", "$group": "g"}
REFUSED_BY_LINT = 'should not have "_sum" suffix'


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed here (Debian: apt-get install prometheus)")
    return found


class Prometheus:
    """A server that scrapes one node every second."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}/api/v1")

    def ask(self, path: str, **parameters: str) -> Any:
        answer = self._client.get(path, params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/query", query=expression)["result"]
        return found

    def ready(self) -> bool:
        """It listens before it reads its storage, and refuses until then."""
        try:
            waits = self._client.get("/query", params={"query": "up"}).status_code == httpx.codes.SERVICE_UNAVAILABLE
            return not waits and bool(self.query("up"))
        except httpx.TransportError:
            return False


@contextmanager
def prometheus(home: Path, target: str) -> Iterator[Prometheus]:
    """The shipped configuration, but for where the node is, and how often it is asked."""
    shipped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    shipped["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    shipped["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in shipped["rule_files"]]
    shipped["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    home.mkdir()
    (home / "prometheus.yaml").write_text(yaml.safe_dump(shipped))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [needs("prometheus"), f"--config.file={home}/prometheus.yaml", f"--storage.tsdb.path={home}/data"]
    command += [f"--web.listen-address={address}", "--log.level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    needs("prometheus")
    home = tmp_path_factory.mktemp("prometheus")
    settings = {"http.listeners": "127.0.0.1:0", "kafka.listeners": "127.0.0.1:0"}
    with running_node(home / "node", settings) as running:
        yield running


@pytest.fixture(scope="module")
def seen(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has seen a group at work: it has committed, has lag, and somebody was refused."""
    with Admin(bootstrap_servers=node.address) as admin, Producer(bootstrap_servers=node.address) as producer:
        admin.create_topic("t", 2)
        consumer = Consumer(bootstrap_servers=node.address, group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        with prometheus(tmp_path_factory.mktemp("scraping") / "home", node.http) as server:
            patience = Patience(PATIENCE_S)
            while not all(server.ready() and server.query(wanted) for wanted in SETTLED):
                assert patience.lasts(), f"Prometheus has not seen the group at work: {server.query('up')}"
                producer.send("t", b"record", partition=0)
                producer.send("t", b"record", partition=1)
                producer.flush()
                consumer.poll(0.2)
                consumer.commit()
                stranger(node)
            yield server
        consumer.close()


SETTLED = (
    'rate(kafka_consumergroup_current_offset_sum{consumergroup="g"}[1m]) > 0',
    'muster_group_lag_seconds{group="g"}',
    'rate(muster_fenced_requests_total{group="g"}[1m])',
    'increase(muster_group_rebalances_total{group="g"}[1m])',
    'rate(muster_requests_total{code="UNKNOWN_MEMBER_ID"}[1m])',
    'rate(muster_handoff_duration_seconds_count{phase="settle"}[1m])',
)


def stranger(node: NodeProcess) -> None:
    with grpc.insecure_channel(node.address) as channel:
        beat = pb.HeartbeatRequest(group_id="g", member_id="a stranger", generation_id=1)
        GroupCoordinatorStub(channel).Heartbeat(beat)


def expressions(dashboard: Path) -> list[tuple[str, str]]:
    """(panel, expression) of each target, variables put in."""
    found = []
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_every_panel_finds_data(dashboard: Path, seen: Prometheus) -> None:
    empty = [(title, expression) for title, expression in expressions(dashboard) if not seen.query(expression)]
    assert empty == []


def test_every_alert_can_be_evaluated_and_none_fires_without_reason(seen: Prometheus) -> None:
    patience, rules = Patience(PATIENCE_S), []
    while not rules or any(rule["health"] == "unknown" for rule in rules):
        assert patience.lasts(), f"rules that were never evaluated: {rules}"
        rules = [rule for group in seen.ask("/rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in rules} == {rule["name"]: "ok" for rule in rules}
    assert [alert["labels"]["alertname"] for alert in seen.ask("/alerts")["alerts"] if alert["state"] == "firing"] == []


def test_lint_refuses_the_sums_that_dashboards_need_and_nothing_else(seen: Prometheus, node: NodeProcess) -> None:
    text = httpx.get(f"http://{node.http}/metrics").text
    done = subprocess.run([needs("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert sorted(complaints) == [
        f"kafka_consumergroup_current_offset_sum non-histogram and non-summary metrics {REFUSED_BY_LINT}",
        f"kafka_consumergroup_lag_sum non-histogram and non-summary metrics {REFUSED_BY_LINT}",
    ]


def test_alerts_fire_when_they_should_and_only_then() -> None:
    folder = DEPLOY / "prometheus"
    for words in (["check", "config", "prometheus.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run([needs("promtool"), *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    folder = DEPLOY / "prometheus"
    rules = yaml.safe_load((folder / "alerts.yaml").read_text())["groups"][0]["rules"]
    cases = yaml.safe_load((folder / "alerts_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert {rule["alert"] for rule in rules} == fired
