"""15. A setting that was acknowledged is there after any crash, and what is told of settings is what there is.

Counted apart from the shard: each change that it decided, and up to which of them somebody was answered. What is read
from the log has to be one of those from the last acknowledged one on.
"""

from dataclasses import dataclass, field

from muster.coordinator.core.effects import Effects, Reply, SettingsReply
from muster.coordinator.core.events import AlterSettings, DescribeSettings, Event, Request
from muster.coordinator.core.records import SettingsStored, SettingsUnset
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.slot import ShardStatus
from tests.sim.watch import Checker
from tests.sim.world import World


@dataclass(slots=True)
class Past:
    """What a group had set, one after the other, and how far that is known to somebody."""

    states: list[SettingsStored | None] = field(default_factory=lambda: [None])
    told: int = 0


class AcknowledgedSettingsStay(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pasts: dict[str, Past] = {}
        self.answers: dict[int, tuple[str, int]] = {}
        """request id -> whose settings it was told of, and which of their states"""

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for record in effects.records:
            if isinstance(record, SettingsStored | SettingsUnset):
                now = record if isinstance(record, SettingsStored) else None
                self.pasts.setdefault(record.group_id, Past()).states.append(now)
        if isinstance(event, AlterSettings | DescribeSettings):
            past = self.pasts.setdefault(event.group_id, Past())
            self.answers[event.request_id] = (event.group_id, len(past.states) - 1)

    def released(self, request: Request, reply: Reply) -> None:
        if request.request_id not in self.answers or reply.code:
            return
        assert isinstance(reply, SettingsReply)
        group_id, index = self.answers.pop(request.request_id)
        past = self.pasts[group_id]
        past.told = max(past.told, index)
        trial = isinstance(request, AlterSettings) and request.validate_only
        there = past.states[index]
        if not trial and shape(there) != (reply.version, reply.values):
            self.fail(f"{group_id} was told to have {reply.values} at version {reply.version}, not {there}")

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        """Requests that a shard has not answered when it goes are answered otherwise."""
        if status in (ShardStatus.FAILED, ShardStatus.UNLOADED):
            self._forget(shard)

    def crashed(self) -> None:
        self.answers.clear()

    def replayed(self, shard: int, core: Shard) -> None:
        self._forget(shard)
        for group_id, past in self.pasts.items():
            if self.node.shard_index(group_id) != shard:
                continue
            found = core.state.settings.get(group_id)
            known = past.states[past.told :]
            if found not in known and not self.harmed(group_id):
                self.fail(f"{group_id} has {found} after a crash, and was acknowledged to have {known[0]}")
            self.world.census["settings after a crash"] += found is not None
            past.states, past.told = [found], 0

    def _forget(self, shard: int) -> None:
        self.answers = {n: told for n, told in self.answers.items() if self.node.shard_index(told[0]) != shard}


def shape(stored: SettingsStored | None) -> tuple[int, object]:
    return (stored.version, stored.values) if stored else (0, {})
