"""3. A reply implies that its records, and all that was decided before them, survive a crash.

Where the log has no room, that is: all that was decided before them of the same group, the one that the request was
about. What answers it may be about no group, or all of them (rights, topics), and the node's own facts, of its stalls,
are of no group: no answer to a member rests on them. Counted apart from the engine, and against what is really on the
disk: a log that lies about a flush is caught here.
"""

from collections.abc import Sequence

from muster.coordinator.core.model.effects import Effects, Reply
from muster.coordinator.core.model.events import Event, Request
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.ports import KeyValue
from tests.sim.checkers.replay import group_of
from tests.sim.watch import Checker
from tests.sim.world import World


class RepliesSurviveCrashes(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ends: dict[int, list[tuple[int, int]]] = {}
        """shard -> where its two topics ended after each append, and after each load"""
        self.needs: dict[int, tuple[int, int]] = {}
        """request id -> (shard, index into its ends)"""
        self.about: dict[int, str] = {}
        """request id -> the group"""
        self.undecided: dict[int, set[str]] = {}
        """Shards with records that were decided and are not appended yet, and whose they are."""

    def received(self, request: Request) -> None:
        self.about[request.request_id] = getattr(request, "group_id", "")

    def loaded(self, shard: int, core: Shard) -> None:
        # What was read may have been written by a process that died before it flushed.
        self.ends.setdefault(shard, []).append(self.node.log.ends(shard))
        self.undecided.pop(shard, None)
        self.needs = {request: need for request, need in self.needs.items() if need[0] != shard}

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        if effects.records:
            self.undecided.setdefault(shard, set()).update(map(group_of, effects.records))
        undecided, ends = self.undecided.get(shard, ()), self.ends.get(shard, [])
        starved = shard in self.node.log.starved
        for request_id, _ in effects.replies:
            waits = self.about.get(request_id, "") in undecided if starved else bool(undecided)
            self.needs[request_id] = (shard, len(ends) if waits else len(ends) - 1)

    def appended(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None:
        self.ends[shard].append(self.node.log.ends(shard))
        self.undecided.pop(shard, None)

    def forgotten(self, request: Request) -> None:
        self.about.pop(request.request_id, None)

    def crashed(self) -> None:
        self.about.clear()

    def released(self, request: Request, reply: Reply) -> None:
        self.about.pop(request.request_id, None)
        if request.request_id not in self.needs or reply.code is ErrorCode.NOT_COORDINATOR:
            return
        shard, index = self.needs.pop(request.request_id)
        safe, ends = self.node.log.safe_ends(shard), self.ends[shard]
        if index >= len(ends) or any(end > kept for end, kept in zip(ends[index], safe, strict=True)):
            needed = ends[index] if index < len(ends) else "an append that was not made"
            self.fail(
                f"request #{request.request_id} ({type(request).__name__}) was answered "
                f"{reply.code.name}, which needs {needed} of shard {shard} on disk; only {safe} is"
            )
