"""How a member's word about partitions becomes a callback of the application."""

import time
from collections.abc import Callable

from muster.client.calls.transport import now_ms
from muster.client.members import actions as act
from muster.client.members.types import TopicPartition as Pair
from muster.client.membership.seam import Callback
from muster.client.types import RebalanceEvent, TopicPartition

KINDS: dict[type, str] = {act.Revoke: "revoked", act.Lost: "lost", act.Assign: "assigned"}


def build_callback(
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


def build_preparation(
    action: act.Prepare,
    generation: int,
    owned: set[Pair],
    patience_ms: int,
    on_ready: Callable[[tuple[TopicPartition, ...]], None],
) -> Callback:
    """What is coming. The deadline is the latest by which the others let go, or are made to."""
    coming = tuple(TopicPartition(*tp) for tp in action.partitions)
    event = RebalanceEvent(
        "prepare",
        action.cause,
        action.detail,
        0,
        generation,
        "cooperative",
        time.time_ns() // 1_000_000 + patience_ms,
        tuple(TopicPartition(*tp) for tp in sorted(owned)),
        coming,
        on_ready=on_ready,
    )
    return Callback("prepare", coming, event, None)
