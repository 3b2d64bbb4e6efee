"""Workers share resources and partitions; assignors that cannot be trusted are named, and the group goes on."""

import json

import pytest

from muster.client import Admin, FencingToken, RebalanceEvent, TopicPartition, Worker
from muster.client.errors import IllegalState
from tests.support.client_stories import PATIENCE_S, fill, member, poll_until, until
from tests.support.node import NodeProcess

pytestmark = pytest.mark.integration


def test_workers_share_named_resources_and_their_tokens_rise(node: NodeProcess) -> None:
    resources = ["ledger", "mail", "search", "stock"]
    heard: list[tuple[str, str]] = []

    def worker() -> Worker:
        return Worker(
            bootstrap_servers=node.address,
            group_id="w-1",
            heartbeat_interval_ms=100,
            scheduled_rebalance_max_delay_ms=0,
        )

    def lose(worker: Worker, resource: TopicPartition, event: RebalanceEvent) -> None:
        assert worker.fencing_token(resource).topic == resource.topic
        heard.append((resource.topic, event.kind))

    one, two = worker(), worker()
    one.join(resources=resources, on_lose=lose)
    until(lambda: len(one.owned()) == 4, one, what="the first worker owns all")
    first = one.fencing_token(("mail", 0))
    assert first == FencingToken("w-1", "mail", 0, 1, one.group_metadata().member_id)
    two.join(resources=resources)
    until(lambda: len(two.owned()) == 2, one, two, what="the second worker gets half")
    assert sorted(heard) == sorted((tp.topic, "revoked") for tp in two.owned())
    assert not one.owned() & two.owned()
    one.close()
    until(lambda: len(two.owned()) == 4, two, what="the second takes over")
    assert two.fencing_token(("mail", 0)).generation > first.generation
    two.close()
    with pytest.raises(IllegalState, match="not owned"):
        two.fencing_token(("mail", 0))


def test_a_worker_over_a_topic_gets_each_partition_once(node: NodeProcess, topic: str) -> None:
    gained: list[int] = []
    with Worker(bootstrap_servers=node.address, group_id=topic) as worker:
        worker.join(topics=[topic], on_gain=lambda _, tp: gained.append(tp.partition))
        until(lambda: len(worker.owned()) == 4, worker, what="all partitions")
    assert sorted(gained) == [0, 1, 2, 3]


def test_an_error_in_one_callback_does_not_keep_the_others_from_being_told(node: NodeProcess) -> None:
    told: list[str] = []

    def gain(worker: Worker, resource: TopicPartition) -> None:
        told.append(resource.topic)
        if resource.topic == "a":
            raise ZeroDivisionError("a")

    with Worker(bootstrap_servers=node.address, group_id="w-2") as worker:
        worker.join(resources=["a", "b"], on_gain=gain)
        with pytest.raises(ZeroDivisionError):
            worker.poll(PATIENCE_S)
        assert told == ["a", "b"]
        assert len(worker.owned()) == 2


def test_a_worker_wants_topics_or_resources(node: NodeProcess) -> None:
    with Worker(bootstrap_servers=node.address, group_id="w-3") as worker:
        with pytest.raises(IllegalState, match="exactly one"):
            worker.join(topics=["t"], resources=["r"])
        with pytest.raises(IllegalState, match="join"):
            worker.poll(0)


@pytest.mark.parametrize(
    ("plugin", "says"), [("Raises", "out of cheese"), ("Forgets", "forgets"), ("Hangs", "not done after 300 ms")]
)
def test_a_bad_assignor_is_named_in_the_ledger_and_the_group_goes_on(
    node: NodeProcess, admin: Admin, topic: str, plugin: str, says: str
) -> None:
    strategy = f"tests.support.plugins:{plugin}"
    with member(node, topic, partition_assignment_strategy=strategy, partition_assignment_deadline_ms=300) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="dealt out nevertheless")
        newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    options = json.loads(newest.snapshot_json)["options"]
    assert options["fallback"] == "range"
    assert says in options["reason"]


def test_the_lag_assignor_is_given_the_lags(node: NodeProcess, admin: Admin, topic: str) -> None:
    fill(node, topic, 30, partition=2)
    fill(node, topic, 10, partition=0)
    admin.alter_offsets(topic, {(topic, 2): 5})
    with member(node, topic, partition_assignment_strategy="lag") as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="assigned")
        newest = admin.explain(topic, limit=1, include_snapshots=True)[0]
    assert json.loads(newest.snapshot_json)["lags"] == {topic: [10, 0, 25, 0]}
