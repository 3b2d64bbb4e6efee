"""Three probes: the process answers, every group is served and the log is written, the start is over."""

import re
from pathlib import Path

import pytest

from muster.coordinator.runtime.node_status import GROUPS, LOG
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.node_events import update_shard_condition, update_starved_condition
from muster.coordinator.web.http.monitoring import NOT_WRITABLE
from tests.fakes.asked_node import AskedNode
from tests.support.web import get


@pytest.fixture
def node() -> AskedNode:
    return AskedNode()


def names(node: AskedNode, path: str = "/readyz") -> list[str]:
    """What is missing."""
    answer = get(node, path)
    assert answer.status_code == 503
    return [each["name"] for each in answer.json()["missing"]]


def test_a_node_that_serves_everything_is_ready(node: AskedNode) -> None:
    for path, status in (("/healthz", "ok"), ("/readyz", "ready"), ("/startupz", "started")):
        answer = get(node, path)
        assert (answer.status_code, answer.json()) == (200, {"status": status})
        assert answer.headers["cache-control"] == "no-store"


def test_shards_that_are_loaded_again_are_named_and_the_start_stays_over(node: AskedNode) -> None:
    node.load(1, done=False)
    node.load(3, done=False)
    [missing] = get(node, "/readyz").json()["missing"]
    assert (missing["name"], missing["shards"]) == ("shards-loading", [1, 3])
    assert "shards 1, 3 are being loaded" in missing["sentence"]
    assert get(node, "/startupz").status_code == 200
    assert get(node, "/healthz").status_code == 200


def test_a_start_is_over_once_every_shard_was_loaded(node: AskedNode) -> None:
    node.starting()
    assert names(node, "/startupz") == ["shards-loading"]
    for shard in range(4):
        node.load(shard, done=True)
    assert get(node, "/startupz").status_code == 200


def test_a_shard_that_failed_is_told_in_the_words_of_muster_health(node: AskedNode) -> None:
    node.load(2, done=False)
    update_shard_condition(node.conditions, 2, ShardStatus.FAILED, "its log cannot be read")
    [missing] = get(node, "/readyz").json()["missing"]
    assert missing["name"] == "shard-failed:2"
    assert missing["sentence"] == node.conditions.sentence("shard-failed:2")


def test_a_log_that_cannot_be_written_is_not_ready(node: AskedNode) -> None:
    node.conditions.report("log-fenced:orders-3", "orders-3 takes no appends", impairs=LOG)
    node.conditions.report("disk-full", "no room", impairs=LOG)
    update_starved_condition(node.conditions, {0: "no room."})
    assert names(node) == ["log-fenced:orders-3", "disk-full", "groups-starved"]


def test_what_impairs_no_group_and_no_append_keeps_nobody_away(node: AskedNode) -> None:
    node.conditions.report("disk-nearly-full", "1 MiB left")
    node.conditions.report("upkeep-failing", "retention fails", impairs=LOG)
    node.conditions.report("log-damaged:orders-1", "records lost", impairs=LOG)
    assert get(node, "/readyz").status_code == 200
    node.conditions.report("whatever", "groups suffer", impairs=GROUPS)
    assert names(node) == ["whatever"]


def test_a_node_that_is_being_stopped_is_not_ready_but_lives(node: AskedNode) -> None:
    node.draining = True
    assert names(node) == ["draining"]
    assert get(node, "/healthz").status_code == 200


def test_the_alert_fires_for_what_the_probe_says() -> None:
    alerts = (Path(__file__).parents[3] / "deploy/prometheus/alerts.yaml").read_text()
    [kinds] = re.findall(r'kind=~"([^"]+)"', alerts)
    # A shard that failed shows by its status.
    assert set(kinds.split("|")) == {*NOT_WRITABLE, "groups-starved"}
