"""Clients whose transactions carry positions, over a simulated cluster: those of the simulator of transactions
(`tests.sim.transactions.workers`), whose groups have coordinators that move.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from muster.client.members import events as ev
from muster.coordinator.core.model.events import JoinGroup
from tests.sim.replication.clients import Asker
from tests.sim.replication.groups.coordinator import INPUTS, GroupAsk
from tests.sim.replication.transactions.coordinator import shard_of_group
from tests.sim.replication.transactions.producers import ProducersHistory
from tests.sim.replication.weather import Weather
from tests.sim.transactions.clients import Producer, Transaction
from tests.sim.transactions.group_members import MemberCall, SimulatedMember
from tests.sim.transactions.group_mutants import EVERY_KIND
from tests.sim.transactions.node import Refused
from tests.sim.transactions.workers import GroupsOperator, PositionProducer, Worker
from tests.sim.transactions.world import DEFAULTS, Options
from tests.sim.world import START_MS

INPUTS_PER_S = 1
"""In each partition."""
OPERATE_MS = 300


class ClusterMember(SimulatedMember):
    """It finds its coordinator by the image of a node. What it has abandoned may arrive yet."""

    coordinator: str | None = None
    joins = 0

    def __init__(self, world: Any, name: str, *rest: Any) -> None:
        super().__init__(world, name, *rest)
        self.asker = Asker(world.cluster, world.network, world.nodes, name)

    def _found(self, token: int) -> None:
        found = self.asker.leader_of(shard_of_group(self.settings.group_id))
        self.coordinator = None if found is None else found[0]
        failed = ev.RequestFailed(token, retriable=True, detail="nobody coordinates the group")
        self.later(lambda: self.tell(failed if found is None else ev.CoordinatorFound(token)))

    def _send(self, call: MemberCall) -> None:
        request = call.request
        if isinstance(request, JoinGroup):
            self.joins += 1
            request = replace(request, fresh_id=f"{self.name}-{self.joins}")
        if self.coordinator is None:
            self.world.after(5, self._hear, call, None)
            return

        def told(outcome: Any) -> None:
            self._hear(call, None if isinstance(outcome, Exception | Refused) else outcome)

        patience_ms = self.settings.rebalance_timeout_ms + 2_000
        self.world.network.ask(
            self.name, self.coordinator, GroupAsk(request), told, patience_ms=patience_ms, by=self.name
        )

    def _forget(self, call: MemberCall) -> None:
        """Its node hears of no connection that breaks."""


def place_of_group(group_id: str) -> tuple[str, int]:
    place = shard_of_group(group_id)
    return place.topic, place.partition


class ClusterPositionProducer(PositionProducer):
    def place_of(self, group_id: str) -> tuple[str, int]:
        return place_of_group(group_id)


class ClusterWorker(Worker):
    member_class = ClusterMember

    def place_of(self, group_id: str) -> tuple[str, int]:
        return place_of_group(group_id)


class PositionsHistory(ProducersHistory):
    """Of producers that carry positions of groups without members, or of workers. tagged: transactions, by how they are
    told of in positions' metadata. outputs: of inputs, that readers have been shown."""

    stall_rate = loss_rate = 0.0
    """The network's to say."""

    def __init__(self, weather: Weather, *rest: Any) -> None:
        super().__init__(*rest)
        backlog = max(1, INPUTS_PER_S * weather.lasts_ms // 1_000)
        self.options: Options = replace(
            DEFAULTS, workers=weather.workers, session_ms=weather.session_ms, inputs=INPUTS, backlog=backlog
        )
        self.lasts_ms = weather.lasts_ms
        self.make_producer: Callable[..., Producer] = ClusterWorker if weather.workers else ClusterPositionProducer
        self.member_kind = self.rng.choice(EVERY_KIND)
        self.tagged: dict[str, Transaction] = {}
        self.outputs: dict[tuple[int, int], Any] = {}

    def start(self, ids: int, levels: Any) -> None:
        super().start(ids, levels)
        if not self.options.workers:
            ClusterGroupsOperator(self).start()

    def available(self) -> int:
        """How many inputs each partition has by now."""
        passed_ms, backlog = self.now_ms - START_MS, self.options.backlog
        return min(backlog, 1 + passed_ms * backlog // self.lasts_ms)

    def consumed(self) -> bool:
        whole = len(self.outputs) == self.options.inputs * self.options.backlog
        return self.closing and (whole or not self.options.workers)


class ClusterGroupsOperator(GroupsOperator):
    def __init__(self, world: PositionsHistory) -> None:
        super().__init__(world)
        self.asker = Asker(world.cluster, world.network, world.nodes, "groups operator")

    def start(self) -> None:
        if self.world.faulty:
            self.do_something()
            self.world.after(self.rng.randint(1, 2 * OPERATE_MS), self.start)

    def waits(self, group_id: str) -> bool:
        return False

    def ask(self, request: Any, answered: Callable[[Any], None]) -> None:
        found = self.asker.leader_of(shard_of_group(request.group_id))

        def told(outcome: Any) -> None:
            if not isinstance(outcome, Exception):
                answered(outcome)

        if found is not None:
            self.asker.network.ask(self.asker.name, found[0], GroupAsk(request), told, patience_ms=1_000)
