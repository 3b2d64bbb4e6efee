"""The plans of a worker that shares named resources: by the delayed protocol (KIP-415) where the group agreed on it."""

from muster.coordinator.client.calls.transport import now_ms
from muster.coordinator.client.config import WorkerConfig
from muster.coordinator.client.membership.planner import PlanMaker
from muster.coordinator.core.types import DELAYED
from muster.coordinator.member import actions as act
from muster.coordinator.member import events as ev
from muster.coordinator.member.connect.member import DelayedLeader


class DelayedPlanner:
    """Needs nobody's word: the members' subscriptions and the leader's memory say it all.

    While members that do not know the protocol are about, the group votes for an assignor; `otherwise` plans then.
    """

    def __init__(self, otherwise: PlanMaker, config: WorkerConfig) -> None:
        self._otherwise = otherwise
        self._leader = DelayedLeader(
            config.scheduled_rebalance_max_delay_ms, config.scheduled_rebalance_delay_survives_leader
        )

    async def plan(self, asked: act.MakePlan) -> ev.PlanMade:
        if asked.protocol_name != DELAYED:
            return await self._otherwise.plan(asked)
        return self._leader.plan(asked, now_ms())
