"""15. What operators said and was acknowledged is there after any crash: settings, what is held, canaries; and what is
told of settings is what there is.

Counted apart from the shard: each change that it decided, and up to which of them somebody was answered. What is read
from the log has to be one of those from the last acknowledged one on.
"""

from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.core.model.effects import Effects, Reply, SettingsReply
from muster.coordinator.core.model.events import (
    AlterSettings,
    DescribeCanary,
    DescribeHolds,
    DescribeSettings,
    EndCanary,
    Event,
    HoldGroup,
    Request,
    ResumeGroup,
    StartCanary,
)
from muster.coordinator.core.model.records import (
    CanaryForgotten,
    CanaryStored,
    HoldsEnded,
    HoldsStored,
    SettingsStored,
    SettingsUnset,
)
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.shards import ShardStatus
from tests.sim.watch import Checker
from tests.sim.world import World

STORED = {SettingsStored: "settings", HoldsStored: "holds", CanaryStored: "canaries"}
GONE = {SettingsUnset: "settings", HoldsEnded: "holds", CanaryForgotten: "canaries"}
ASKED: dict[type[Any], str] = {
    **dict.fromkeys((AlterSettings, DescribeSettings), "settings"),
    **dict.fromkeys((HoldGroup, ResumeGroup, DescribeHolds), "holds"),
    **dict.fromkeys((StartCanary, EndCanary, DescribeCanary), "canaries"),
}

Place = tuple[str, str]
"""What it is about, by the name that it has in a shard's state, and whose it is."""


@dataclass(slots=True)
class Past:
    """What a group had, one after the other, and how far that is known to somebody."""

    states: list[object] = field(default_factory=lambda: [None])
    told: int = 0


class AcknowledgedSettingsStay(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pasts: dict[Place, Past] = {}
        self.answers: dict[int, tuple[Place, int]] = {}
        """request id -> what it was told of, and which of its states"""

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for record in effects.records:
            kind = type(record)
            if (what := STORED.get(kind) or GONE.get(kind)) is not None:  # type: ignore[arg-type, call-overload]
                now = record if kind in STORED else None
                self._past((what, record.group_id)).states.append(now)  # type: ignore[union-attr]
        if (what := ASKED.get(type(event))) is not None:
            place = (what, event.group_id)  # type: ignore[union-attr]
            self.answers[event.request_id] = (place, len(self._past(place).states) - 1)  # type: ignore[union-attr]

    def _past(self, place: Place) -> Past:
        return self.pasts.setdefault(place, Past())

    def released(self, request: Request, reply: Reply) -> None:
        if request.request_id not in self.answers or reply.code:
            return
        place, index = self.answers.pop(request.request_id)
        past = self.pasts[place]
        past.told = max(past.told, index)
        trial = isinstance(request, AlterSettings) and request.validate_only
        there = past.states[index]
        if isinstance(reply, SettingsReply) and not trial and shape(there) != (reply.version, reply.values):
            self.fail(f"{place[1]} was told to have {reply.values} at version {reply.version}, not {there}")

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        """Requests that a shard has not answered when it goes are answered otherwise."""
        if status in (ShardStatus.FAILED, ShardStatus.UNLOADED):
            self._forget(shard)

    def crashed(self) -> None:
        self.answers.clear()

    def replayed(self, shard: int, core: Shard) -> None:
        self._forget(shard)
        for (what, group_id), past in self.pasts.items():
            if self.node.shard_index(group_id) != shard:
                continue
            found = getattr(core.state, what).get(group_id)
            known = past.states[past.told :]
            if found not in known and not self.harmed(group_id):
                self.fail(f"{group_id} has {found} after a crash, and was acknowledged to have {known[0]}")
            self.world.census[f"{what} after a crash"] += found is not None
            # What was read need not be on the disk yet: a flush that fails may take it back.
            upto = max((at for at, state in enumerate(known) if state == found), default=None)
            past.states, past.told = [found] if upto is None else known[: upto + 1], 0

    def _forget(self, shard: int) -> None:
        self.answers = {n: told for n, told in self.answers.items() if self.node.shard_index(told[0][1]) != shard}


def shape(stored: object) -> tuple[int, object]:
    return (stored.version, stored.values) if isinstance(stored, SettingsStored) else (0, {})
