"""Classic members whose plan the coordinator makes (group.remote.assignor), against a real node."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer, Worker
from muster.client.errors import IllegalState, Refused
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause, RebalanceOutcome
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
names = count()

PLUGINS = [f"tests.support.plugins:{name}" for name in ("Raises", "Forgets", "Hangs")]
SETTINGS = {"group.remote.assignors": ",".join(PLUGINS), "group.assignor.deadline.ms": "300"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("remote") / "data"), SETTINGS) as running:
        yield running


@pytest.fixture
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.address) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"remote-{next(names)}"
    admin.create_topic(name, 4)
    return name


def member(node: NodeProcess, topic: str, **more: object) -> Consumer:
    properties = {"heartbeat_interval_ms": 50, "group_remote_assignor": "uniform"} | more
    consumer = Consumer(bootstrap_servers=node.address, group_id=topic, **properties)
    consumer.subscribe([topic])
    return consumer


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_nobody_leads_and_everybody_gets_a_share(node: NodeProcess, admin: Admin, topic: str, strategy: str) -> None:
    with member(node, topic, partition_assignment_strategy=strategy) as one:
        poll_until(lambda: len(one.assignment()) == 4, one, what="one has all")
        with member(node, topic, partition_assignment_strategy=strategy) as two:
            poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two, what="half each")
            assert not set(one.assignment()) & set(two.assignment())
            assert admin.describe_group(topic).leader == ""
            newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    assert newest.snapshot_source == "remote"
    assert json.loads(newest.snapshot_json)["assignor"] == "uniform"


def test_the_coordinator_watches_the_topics(node: NodeProcess, admin: Admin, topic: str) -> None:
    with member(node, topic) as consumer:
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        admin.create_partitions(topic, 6)
        poll_until(lambda: len(consumer.assignment()) == 6, consumer, what="the new ones")
        assert admin.explain(topic, limit=1)[0].cause == RebalanceCause.REBALANCE_CAUSE_PARTITIONS_CHANGED


def test_an_assignor_that_wants_lags_is_given_those_of_the_moment(node: NodeProcess, admin: Admin, topic: str) -> None:
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(30):
            producer.produce(topic, b"%d" % number, partition=2)
    admin.alter_offsets(topic, {(topic, 2): 5})
    with member(node, topic, group_remote_assignor="lag") as consumer:
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    assert json.loads(newest.snapshot_json)["lags"] == {topic: [0, 0, 25, 0]}


@pytest.mark.parametrize(
    ("plugin", "says"), [("Raises", "out of cheese"), ("Forgets", "forgets"), ("Hangs", "not done after 300 ms")]
)
def test_a_bad_plugin_is_named_and_tried_again_until_the_members_ask_for_another(
    node: NodeProcess, admin: Admin, topic: str, plugin: str, says: str
) -> None:
    word = f"tests.support.plugins:{plugin}"

    def failed() -> bool:
        entries = admin.explain(topic) if topic in {group.group_id for group in admin.list_groups()} else []
        return any(entry.cause == RebalanceCause.REBALANCE_CAUSE_ASSIGNOR_FAILED for entry in entries)

    with member(node, topic, group_remote_assignor=word) as stuck:
        poll_until(failed, stuck, what="it was tried twice")
        with member(node, topic) as one, member(node, topic) as two:
            poll_until(lambda: bool(one.assignment()) and bool(two.assignment()), stuck, one, two, what="a majority")
    told = [entry for entry in admin.explain(topic) if entry.outcome == RebalanceOutcome.REBALANCE_OUTCOME_SUPERSEDED]
    assert any(says in line for entry in told for line in [entry.detail, *entry.also])


def test_a_word_that_is_not_allowed_here_is_refused_with_the_choices(node: NodeProcess, topic: str) -> None:
    refusal = "'os:system' is not an assignor of this coordinator; known here: range"
    with member(node, topic, group_remote_assignor="os:system") as consumer, pytest.raises(Refused, match=refusal):
        poll_until(lambda: False, consumer, what="the refusal")


def test_named_resources_cannot_be_assigned_there(node: NodeProcess) -> None:
    worker = Worker(bootstrap_servers=node.address, group_id="w", group_remote_assignor="uniform")
    with worker, pytest.raises(IllegalState, match="cannot assign named resources"):
        worker.join(resources=["r"])
