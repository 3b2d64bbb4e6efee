"""Strangers say more than a group, or the log, can keep: at once, or together with what others have said."""

from typing import Protocol as Shape

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup
from muster.coordinator.core.model.types import Protocol
from tests.sim.network import Answer, Network
from tests.sim.node.crashing_log import GROUP_BYTES

TIMEOUT_MS = 5_000
SESSION_MS = 6_000
TOPIC_CHARACTERS = 200


class Target(Shape):
    """A place in the group that they want to be members of."""

    group_id: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    rebalance_timeout_ms: int


class Strangers:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.world = network.world
        self._seen = 0

    def say_much(self, target: Target) -> None:
        """A newcomer of either protocol. One that is taken in is never heard of again."""
        self._seen += 1
        name = f"stranger{self._seen}"
        size = self.world.between(GROUP_BYTES // 4, 4 * GROUP_BYTES)
        self.world.census["strangers with much to say"] += 1
        by_join = self.world.chance(0.7)
        request = join(target, name, size) if by_join else beat(target, name, size)
        self.network.call(name, request, TIMEOUT_MS, self._hear)

    def _hear(self, answer: Answer) -> None:
        if answer is not None:
            self.world.census[f"strangers with much to say: {answer.code.name}"] += 1


def join(target: Target, name: str, size: int) -> JoinGroup:
    blob = encode_subscription(Subscription(version=1, topics=target.topics, user_data=bytes(size)))
    return JoinGroup(
        request_id=0,
        group_id=target.group_id,
        member_id="",
        group_instance_id=None,
        client_id=name,
        client_host="host",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=target.rebalance_timeout_ms,
        protocol_type="consumer",
        protocols=tuple(Protocol(word, blob) for word in target.assignors),
        fresh_id="",
        require_known_member_id=False,
    )


def beat(target: Target, name: str, size: int) -> ConsumerHeartbeat:
    topics = tuple(f"{number:0{TOPIC_CHARACTERS}}" for number in range(size // TOPIC_CHARACTERS))
    return ConsumerHeartbeat(
        0,
        target.group_id,
        name,
        0,
        rebalance_timeout_ms=target.rebalance_timeout_ms,
        topic_names=topics,
        owned={},
    )
