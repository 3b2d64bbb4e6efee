"""10. A refused request changes nothing: no fact, no timer, no group's kind, wherever the group is on its way.

No real request needs to be refused for that: after a step strangers ask, beside the network and by turns, what no group
takes, whatever its kind and state. Groups without members are asked most, for they turn into other kinds on request.
"""

from collections.abc import Iterator

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event, RegisterConsumer, Request
from muster.coordinator.core.model.types import CommittedOffset, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.checkers.commits import group_of
from tests.sim.watch import Checker
from tests.sim.world import World

EVERY, EVERY_EMPTY = 16, 2
"""Of the steps of a group with members, and of one without, one in so many is followed by a question."""

NOBODY = -1
"""The request id of a stranger: the engine never hears of it."""


class RefusalsChangeNothing(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.steps = self.asked = 0

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        group_id = group_of(event)
        if not group_id:
            return
        self.steps += 1
        if self.steps % (EVERY if has_members(core, group_id) else EVERY_EMPTY):
            return
        questions = list(refusable(group_id))
        self.asked += 1
        request = questions[self.asked % len(questions)]
        before = standing(core, group_id)
        answer = core.step(request, self.world.node_ms)
        self.world.census["refused requests of strangers"] += 1
        ((_, reply),) = answer.replies
        if reply.code is ErrorCode.NONE:
            self.fail(f"{request} was taken: {reply}")
        if answer.records or answer.timers or standing(core, group_id) != before:
            self.fail(f"{request} was refused ({reply.message}) and yet changed {before}: {answer}")


def has_members(core: Shard, group_id: str) -> bool:
    kinds = (core.groups, core.consumer_groups, core.central_groups)
    return any(group_id in kind and len(kind[group_id].members) > 0 for kind in kinds)  # type: ignore[attr-defined]


def standing(core: Shard, group_id: str) -> tuple[object, ...]:
    """Which kind the group is of and how it stands, as far as a refusal could have touched it."""
    classic, consumer = core.groups.get(group_id), core.consumer_groups.get(group_id)
    central = core.central_groups.get(group_id)
    return (
        classic and (classic.state, classic.generation, list(classic.members), set(classic.pending_joins)),
        consumer and (consumer.state, consumer.epoch, list(consumer.members)),
        central and (central.state, central.generation, list(central.members)),
        dict(core.state.deadlines),
    )


def refusable(group_id: str) -> Iterator[Request]:
    """What no group takes, whatever its kind and state."""
    protocols = (Protocol("range", b""),)

    def join(session_ms: int = 10_000, kind: str = "consumer", word: str = "", member: str = "") -> events.JoinGroup:
        offer = protocols if kind else ()
        return events.JoinGroup(
            NOBODY, group_id, member, None, "c", "h", session_ms, -1, kind, offer, "f", "", False, remote_assignor=word
        )

    def beat(epoch: int = 0, **said: object) -> events.ConsumerHeartbeat:
        full: dict[str, object] = {"rebalance_timeout_ms": 10_000, "topic_names": ("t0",), "owned": {}, **said}
        return events.ConsumerHeartbeat(NOBODY, group_id, "stranger", epoch, **full)  # type: ignore[arg-type]

    def register(word: str = "range", session_ms: int = 10_000, generation: int = -1) -> RegisterConsumer:
        return RegisterConsumer(NOBODY, group_id, "stranger", "c", "h", session_ms, ("t0",), "", word, generation)

    yield join(word="nonsense")
    yield join(word="range", kind="connect")
    yield join(session_ms=1)
    yield join(kind="")
    yield beat(server_assignor="nonsense")
    yield beat(topic_regex="(")
    yield beat(rebalance_timeout_ms=-1)
    yield beat(epoch=7)
    yield register(word="nonsense")
    yield register(session_ms=1)
    yield register(generation=1_000_000)
    yield events.SyncGroup(NOBODY, group_id, "stranger", None, 1, None, None, ())
    yield events.Heartbeat(NOBODY, group_id, "stranger", "instance", 1)
    yield events.OffsetCommit(NOBODY, group_id, "stranger", None, 1_000_000, {("t0", 0): CommittedOffset(1)})
