"""A process writes on behalf of what it owns, or once owned: it may stand still between any two of its steps."""

from typing import TYPE_CHECKING
from zlib import crc32

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.coordinator.core.model.effects import ClaimFenceReply
from muster.coordinator.core.model.events import NO_PRODUCER, ClaimFence
from tests.sim.network import Answer

if TYPE_CHECKING:
    from tests.sim.members.client import Process

EVERY_MS = 6_000
IDS = 1 << 20


class FencedWriter:
    """Tokens are kept for as long as the process lives; so are the ownerships that they brought."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = process.world
        self.tokens: dict[TopicPartition, tuple[str, int]] = {}
        """partition -> as whom, and under which generation it was gained last"""
        self.granted: dict[TopicPartition, ClaimFenceReply] = {}
        self._claims = 0

    def start(self) -> None:
        self.world.after(self.world.between(1, EVERY_MS), self._now_and_then)

    def gained(self, action: act.Assign) -> None:
        for place in action.added:
            self.tokens[place] = self.process.member.member_id, action.generation
            self.granted.pop(place, None)

    def _now_and_then(self) -> None:
        if self.process.alive:
            self.process.later(self._go_on)
            self.world.after(self.world.between(1, EVERY_MS), self._now_and_then)

    def _go_on(self) -> None:
        if not self.tokens:
            return
        place = self.world.rng.choice(sorted(self.tokens))
        granted = self.granted.get(place)
        if granted is not None and self.world.chance(0.7):
            self.process.watch.wrote(self.process, place, granted)
        else:
            self._claim(place, granted if self.world.chance(0.3) else None)

    def _claim(self, place: TopicPartition, held: ClaimFenceReply | None) -> None:
        self._claims += 1
        fresh_id = crc32(self.process.name.encode()) * IDS + self._claims
        member_id, generation = self.tokens[place]
        known = (NO_PRODUCER, NO_PRODUCER) if held is None else (held.producer_id, held.epoch)
        group_id = self.process.settings.group_id
        self.process.ask(
            ClaimFence(0, group_id, member_id, *place, generation, *known, fresh_id),
            lambda answer: self._claimed(place, answer),
        )

    def _claimed(self, place: TopicPartition, answer: Answer) -> None:
        if isinstance(answer, ClaimFenceReply):
            self.world.census[f"claims: {answer.code.name}"] += 1
            if not answer.code:
                self.granted[place] = answer
                self.process.watch.wrote(self.process, place, answer)
