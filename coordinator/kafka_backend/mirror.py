"""KB-M4: what groups commit here is committed upstream, too: for tools that read it there, and for the way back.

Best effort, behind what counts here, and each group seldom. Which groups have committed is seen in what goes into the
state log; what they have committed is asked for as a client would, so that nothing leaves that a crash could undo.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.coordinator.kafka_backend.upstream import groups
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.groups import UNKNOWN_TOPIC, UpstreamOffset
from muster.coordinator.kafka_backend.upstream.records import TopicPartition
from muster.coordinator.kafka_backend.upstream.running import BackgroundTask
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

AT_ONCE: Final = 8
"""Groups that are asked for and written at a time."""

LEFT_ALONE_MS: Final = 60_000
"""So long nothing is written for a group that the upstream refuses: it has members there, as a rule."""


class GroupAway(Exception):
    """The group is not this node's, or cannot be asked for now."""


@dataclass(slots=True)
class MirroredGroup:
    """dirty: it has committed since it was asked for. not_before_ms: when it may be written next. told: what the
    upstream has of it from this node."""

    shard: int
    dirty: bool = True
    not_before_ms: int = 0
    told: dict[TopicPartition, UpstreamOffset] = field(default_factory=dict)


class OffsetMirror:
    """`start` and `stop`; `written` is called with what is appended to the state log."""

    def __init__(
        self,
        upstream: Upstream,
        positions: Callable[[str], Awaitable[Mapping[TopicPartition, UpstreamOffset]]],
        *,
        now_ms: Callable[[], int],
        interval_ms: int,
        on_trouble: Callable[[str], None] = lambda sentence: None,
        on_bug: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """positions: all that counts of what a group has committed; raises Away. interval_ms:
        `engine.kafka.offsets.mirror.interval.ms`. on_trouble hears why something was not written, and of "" when all
        was."""
        self._upstream = upstream
        self._positions = positions
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._on_trouble = on_trouble
        self._groups: dict[str, MirroredGroup] = {}
        self._running = BackgroundTask(on_bug)
        self._why = ""

    def start(self) -> None:
        self._running.start(self._run())

    async def stop(self) -> None:
        await self._running.stop()

    def written(self, shard: int, groups: Iterable[str]) -> None:
        """Positions of these are on their way into the state log. Whether they will count is not known yet."""
        for group in groups:
            self._groups.setdefault(group, MirroredGroup(shard)).dirty = True

    def lost(self, shard: int) -> None:
        """Another node may have the shard, and mirror it: what the upstream has of its groups is not known here."""
        for group in [group for group, each in self._groups.items() if each.shard == shard]:
            del self._groups[group]

    async def round(self) -> None:
        """Write what is due."""
        now_ms = self._now_ms()
        due = [group for group, each in self._groups.items() if each.dirty and each.not_before_ms <= now_ms]
        self._why = ""
        for begin in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._mirror(group, now_ms) for group in due[begin : begin + AT_ONCE]))
        if due:
            self._on_trouble(self._why)

    async def _mirror(self, group: str, now_ms: int) -> None:
        mirrored = self._groups.get(group)
        if mirrored is None:
            return  # lost while others were written
        mirrored.dirty, mirrored.not_before_ms = False, now_ms + self._interval_ms
        try:
            kept = await self._positions(group)
            new = {place: position for place, position in kept.items() if mirrored.told.get(place) != position}
            refused = await groups.commit_offsets(self._upstream, group, new) if new else {}
        except GroupAway:
            self._groups.pop(group, None)  # whoever has it mirrors it
            return
        except UpstreamError as error:
            self._again(group, self._interval_ms, str(error))
            return
        if not kept and not mirrored.dirty:
            self._groups.pop(group, None)  # nothing is left of it
            return
        mirrored.told = {place: position for place, position in kept.items() if place not in refused}
        codes = set(refused.values()) - {UNKNOWN_TOPIC}
        if codes:
            self._again(group, LEFT_ALONE_MS, f"the upstream says {describe_code(min(codes))}; has it members there?")

    def _again(self, group: str, in_ms: int, why: str) -> None:
        mirrored = self._groups.get(group)
        if mirrored is None:
            return
        mirrored.dirty, mirrored.not_before_ms = True, self._now_ms() + in_ms
        self._why = f"what group {group} has committed is not in the upstream yet: {why}"

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1_000)
            await self.round()
