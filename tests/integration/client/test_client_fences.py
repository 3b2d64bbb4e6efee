"""A zombie is refused by the log: whoever owns a partition is the only one that can write on its behalf."""

import pytest

from muster.client import Admin, Consumer, FencingToken, Producer, Worker
from muster.client.errors import ConfigError, DeliveryFailed, IllegalState, ProducerFenced, UnknownTopic
from tests.support.client_stories import PATIENCE_S, until
from tests.support.node import NodeProcess

pytestmark = pytest.mark.integration


def worker(node: NodeProcess, group: str, **more: object) -> Worker:
    properties = {"bootstrap.servers": node.address, "group.id": group}
    return Worker(properties, **more)


def values(node: NodeProcess, topic: str, count: int) -> list[bytes | None]:
    """The first records of the topic, as far as there are so many."""
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as reader:
        reader.assign([(topic, 0), (topic, 1)])
        read: list[bytes | None] = []
        while len(read) < count:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"{len(read)} of {count} records came"
            read.append(message.value)
        return read


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_former_owner_is_refused_once_the_next_one_writes(node: NodeProcess, topic: str, protocol: str) -> None:
    out = f"{topic}-out"
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(out, partitions=2)
    one = worker(node, topic, group_protocol=protocol)
    one.join(topics=[topic])
    until(lambda: len(one.owned()) == 4, one, what="the first worker owns all")
    old = one.fencing_token((topic, 3))
    zombie = Producer(bootstrap_servers=node.address, fence=old, delivery_timeout_ms=PATIENCE_S * 1000)
    for n in range(3):
        zombie.produce(out, f"old {n}", partition=0)
        zombie.flush()
    zombie.produce(out, "elsewhere", partition=1)
    zombie.flush()
    one.close()  # its producer knows nothing of that

    two = worker(node, topic, group_protocol=protocol)
    two.join(topics=[topic])
    until(lambda: len(two.owned()) == 4, two, what="the second worker owns all")
    with Producer(bootstrap_servers=node.address, fence=two.fencing_token((topic, 3))) as heir:
        heir.produce(out, "new", partition=0)
        heir.flush()
        for partition in (0, 1):  # the heir has never written to the second
            zombie.produce(out, "too late", partition=partition)
            with pytest.raises(DeliveryFailed) as failed:
                zombie.flush()
            assert isinstance(failed.value.first, ProducerFenced)
        with pytest.raises(ProducerFenced):
            zombie.claim([(out, 1)])
        heir.produce(out, "newer", partition=0)
    zombie.close()
    assert sorted(values(node, out, 6)) == [b"elsewhere", b"new", b"newer", b"old 0", b"old 1", b"old 2"]
    two.close()


def test_a_claim_alone_is_enough(node: NodeProcess, topic: str) -> None:
    with worker(node, topic) as owner:
        owner.join(topics=[topic])
        until(lambda: len(owner.owned()) == 4, owner, what="the worker owns all")
        token = owner.fencing_token((topic, 0))
        with (
            Producer(bootstrap_servers=node.address, fence=token) as first,
            Producer(bootstrap_servers=node.address, fence=token) as second,
        ):
            first.produce(topic, "one", partition=1)
            first.flush()
            second.claim()
            first.produce(topic, "two", partition=1)
            with pytest.raises(DeliveryFailed, match="INVALID_PRODUCER_EPOCH"):
                first.flush()


def test_what_cannot_be_is_refused(node: NodeProcess, topic: str) -> None:
    stranger = FencingToken(topic, topic, 0, 7, "nobody")
    with Producer(bootstrap_servers=node.address, fence=stranger) as producer:
        producer.produce(topic, "x", partition=0)
        with pytest.raises(DeliveryFailed, match="INVALID_PRODUCER_EPOCH"):
            producer.flush()
        with pytest.raises(UnknownTopic):
            producer.claim([("no-such-topic", 0)])
    with pytest.raises(ConfigError, match="acks"):
        Producer(bootstrap_servers=node.address, fence=stranger, acks=0)
    with Producer(bootstrap_servers=node.address) as plain, pytest.raises(IllegalState, match="fence"):
        plain.claim()
