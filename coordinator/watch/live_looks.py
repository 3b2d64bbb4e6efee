"""Looks at the groups of a Kafka as they are now: which rebalance, asked of each broker every now and then.

A look asks for those groups only that are in a state in which a group rebalances, so it answers with little; a broker
that does not know states (before Kafka 2.6) is asked to describe its groups, some at a time. At most one question is
under way at each broker. How often it is asked depends on how long it takes to answer: it is to spend no more than a
fiftieth of one core on it. A broker that throttles, or fails, is left alone for longer.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.kafka_backend.upstream.group_requests import (
    AT_ONCE,
    ListedUpstreamGroup,
    describe_groups,
    list_groups_in,
)
from muster.coordinator.kafka_backend.upstream.protocol import Unspoken, UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
"""States of classic groups, and of KIP-848 groups."""

BROKERS_S: Final = 5.0
"""How often it is seen to it that all brokers are looked at."""

LEFT_ALONE: Final = 50
"""So many times as long as its answer took is a broker left alone."""

NEWEST_ANSWERS: Final = 5
"""The quickest of so many tells what an answer takes of the broker: others had to wait for something. Before there are
so many nothing is concluded: the first has to wait for its connection."""

CALM_S: Final = 30.0
CALMLY: Final = 6
"""Where nothing has rebalanced for so long, and at the start, a broker is left alone so many times as long: rounds
mostly last as long, for members hear of them with a heartbeat, every three seconds."""

VERY_CALM_S: Final = 600.0
VERY_CALMLY: Final = 10
"""The same for longer: to list groups is the dearest of what is asked in calm, for a broker has to ask all partitions
of the topic that it leads."""

LONGEST_S: Final = 30.0
"""Between two looks at a broker that fails."""


class LooksListener(Protocol):
    """Hears what looks see."""

    def saw_state(self, group_id: str, state: str) -> None:
        """A group rebalances, in this state; "": it does so no longer."""

    async def saw_settled(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """These rebalanced until now. The broker can be asked of them: nothing else is under way there."""

    async def saw_groups(self, broker: int, groups: Sequence[ListedUpstreamGroup]) -> None:
        """All groups of the broker, now and then. It can be asked of them, too."""

    def looks_troubled(self, broker: int, why: str) -> None:
        """The broker cannot be looked at; why, as a sentence, or "" where it can again."""


@dataclass(slots=True)
class LookPace:
    """How long one broker is left alone, in seconds. poll_s: at least, between two looks."""

    poll_s: float
    failures: int = 0
    calm_s: float = CALM_S
    """For how long nothing has been seen to rebalance; in the beginning nothing is known to."""
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST_ANSWERS))

    def after_answer(self, took_s: float, throttle_s: float, *, busy: bool = True) -> float:
        """busy: something rebalances.

        >>> pace = LookPace(0.5)
        >>> pace.after_answer(0.002, 0), pace.after_answer(0.002, 4), pace.after_answer(0.002, 0, busy=False)
        (0.5, 4, 0.5)
        """
        if busy:
            self.calm_s = 0.0
        pause_s = self._pause_s(took_s, throttle_s)
        self.calm_s += 0.0 if busy else pause_s
        return pause_s

    def _pause_s(self, took_s: float, throttle_s: float) -> float:
        calm = VERY_CALMLY if self.calm_s >= VERY_CALM_S else CALMLY if self.calm_s >= CALM_S else 1
        poll_s = self.poll_s * calm
        self.failures = 0
        self.took_s.append(took_s)
        known = len(self.took_s) == NEWEST_ANSWERS
        return max(poll_s, LEFT_ALONE * min(self.took_s) if known else 0.0, throttle_s)

    def after_failure(self) -> float:
        """
        >>> pace = LookPace(0.5)
        >>> pace.after_failure(), pace.after_failure()
        (1.0, 2.0)
        """
        self.failures = min(self.failures + 1, 10)
        return min(self.poll_s * 2.0**self.failures, LONGEST_S)


@dataclass(slots=True)
class BrokerSight:
    """What was seen of one broker. described_s: when all its groups were listed last; None: never. waiting: groups that
    are still to be described, of a broker that does not know states."""

    rebalancing: dict[str, ListedUpstreamGroup] = field(default_factory=dict)
    described_s: float | None = None
    waiting: list[ListedUpstreamGroup] = field(default_factory=list)
    trouble: str = ""


class LiveLooks:
    """`start` in the loop it lives in; `stop` ends it. Its upstream's view has to be kept fresh by others."""

    def __init__(self, upstream: Upstream, listener: LooksListener, *, poll_ms: int, describe_ms: int) -> None:
        self._upstream = upstream
        self._listener = listener
        self._poll_s = poll_ms / 1000
        self._describe_s = describe_ms / 1000
        self._looking: dict[int, RestartedTask] = {}
        self._sights: dict[int, BrokerSight] = {}
        self._paces: dict[int, LookPace] = {}
        self._minding = RestartedTask("brokers to look at", self._mind_brokers)
        self.only_looks = False
        """Whether looks are all that is known of groups: then they do not become rarer."""

    def start(self) -> None:
        self._minding.start()

    async def stop(self) -> None:
        await self._minding.stop()
        for task in self._looking.values():
            await task.stop()

    def stir(self) -> None:
        """Something else than a look tells that groups rebalance: from the next look on they are frequent."""
        for pace in self._paces.values():
            pace.calm_s = 0.0

    def look_at_all_soon(self) -> None:
        """With the next look, whenever that was done last."""
        for sight in self._sights.values():
            sight.described_s = None

    async def _mind_brokers(self) -> None:
        while True:
            brokers = self._upstream.view.brokers.keys()
            for broker in brokers - self._looking.keys():
                self._sights[broker] = BrokerSight()
                self._looking[broker] = RestartedTask(f"looks at broker {broker}", partial(self._look_on, broker))
                self._looking[broker].start()
            for broker in self._looking.keys() - brokers:
                await self._looking.pop(broker).stop()
                self._paces.pop(broker, None)
                self._lose_sight(broker, "")
                del self._sights[broker]
            await asyncio.sleep(BROKERS_S)

    async def _look_on(self, broker: int) -> None:
        pace, clock = LookPace(self._poll_s), asyncio.get_running_loop().time
        self._paces[broker] = pace
        while True:
            began_s = clock()
            try:
                before = bool(self._sights[broker].rebalancing)
                throttle_s = await self.look(broker)
                busy = before or bool(self._sights[broker].rebalancing) or self.only_looks
                pause_s = pace.after_answer(clock() - began_s, throttle_s, busy=busy)
                if self._is_due(broker, clock()):
                    pause_s = max(pause_s, await self._look_at_all(broker))
                self._tell_trouble(broker, "")
            except UpstreamError as error:
                self._lose_sight(broker, f"broker {broker} does not tell which groups rebalance: {error}")
                pause_s = pace.after_failure()
            await asyncio.sleep(pause_s)

    async def look(self, broker: int) -> float:
        """Look once; how long the broker asks to be left alone, in seconds. Raises UpstreamError."""
        try:
            listed = await list_groups_in(self._upstream, broker, REBALANCING)
        except Unspoken:
            return await self._look_by_describing(broker)
        if listed.code:
            raise UpstreamRefused(f"asking broker {broker} which groups rebalance", listed.code)
        seen = {each.group: each for each in listed.groups if each.state in REBALANCING}
        await self._tell(broker, seen, self._sights[broker].rebalancing.keys() - seen.keys())
        return listed.throttle_ms / 1000

    async def _look_by_describing(self, broker: int) -> float:
        sight = self._sights[broker]
        if not sight.waiting:
            listed = await list_groups_in(self._upstream, broker, ())
            sight.waiting = list(listed.groups)
            if listed.throttle_ms:
                return listed.throttle_ms / 1000
        asked, sight.waiting = sight.waiting[:AT_ONCE], sight.waiting[AT_ONCE:]
        told = await describe_groups(self._upstream, broker, asked) if asked else {}
        seen = {
            each.group: each._replace(state=told[each.group].state)
            for each in asked
            if each.group in told and told[each.group].state in REBALANCING
        }
        gone = sight.rebalancing.keys() & {each.group for each in asked} - seen.keys()
        await self._tell(broker, sight.rebalancing | seen, gone)
        return 0.0

    async def _tell(self, broker: int, seen: dict[str, ListedUpstreamGroup], settled: set[str]) -> None:
        sight = self._sights[broker]
        before, sight.rebalancing = (
            sight.rebalancing,
            {name: each for name, each in seen.items() if name not in settled},
        )
        for name, each in sight.rebalancing.items():
            if name not in before or before[name].state != each.state:
                self._listener.saw_state(name, each.state)
        for name in sorted(settled):
            self._listener.saw_state(name, "")
        if settled:
            await self._listener.saw_settled(broker, [before[name] for name in sorted(settled)])

    def _is_due(self, broker: int, now_s: float) -> bool:
        described_s = self._sights[broker].described_s
        return described_s is None or now_s - described_s >= self._describe_s

    async def _look_at_all(self, broker: int) -> float:
        """Raises UpstreamError."""
        listed = await list_groups_in(self._upstream, broker, ())
        if listed.code:
            raise UpstreamRefused(f"asking broker {broker} which groups it has", listed.code)
        self._sights[broker].described_s = asyncio.get_running_loop().time()
        await self._listener.saw_groups(broker, listed.groups)
        return listed.throttle_ms / 1000

    # -- trouble ------------------------------------------------------------------------------------------------------

    def _lose_sight(self, broker: int, why: str) -> None:
        """What it said of its groups holds no longer."""
        sight = self._sights[broker]
        for name in sight.rebalancing:
            self._listener.saw_state(name, "")
        sight.rebalancing = {}
        self._tell_trouble(broker, why)

    def _tell_trouble(self, broker: int, why: str) -> None:
        if self._sights[broker].trouble != why:
            self._sights[broker].trouble = why
            self._listener.looks_troubled(broker, why)
