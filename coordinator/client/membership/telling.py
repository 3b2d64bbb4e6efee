"""How a member's word about partitions becomes a callback of the application."""

import time

from muster.coordinator.client.calls.transport import now_ms
from muster.coordinator.client.membership.seam import Callback
from muster.coordinator.client.types import RebalanceEvent, TopicPartition
from muster.coordinator.member import actions as act
from muster.coordinator.member.types import TopicPartition as Pair

KINDS: dict[type, str] = {act.Revoke: "revoked", act.Lost: "lost", act.Assign: "assigned"}


def callback_of(
    action: act.Revoke | act.Lost | act.Assign, generation: int, protocol: str, owned: set[Pair], patience_ms: int
) -> Callback:
    """`owned` is everything owned once it has been told; `patience_ms` is how long the group waits after an Assign."""
    deadline_ms = now_ms() + patience_ms if isinstance(action, act.Assign) else action.deadline_ms
    event = RebalanceEvent(
        KINDS[type(action)],
        action.cause,
        action.detail,
        action.rebalance_number,
        action.generation if isinstance(action, act.Assign) else generation,
        protocol,
        time.time_ns() // 1_000_000 + deadline_ms - now_ms(),
        tuple(TopicPartition(*tp) for tp in sorted(owned)),
    )
    told = action.added if isinstance(action, act.Assign) else action.partitions
    token = None if isinstance(action, act.Assign) else action.token
    return Callback(event.kind, tuple(TopicPartition(*tp) for tp in told), event, token)
