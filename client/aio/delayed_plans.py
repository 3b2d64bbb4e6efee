"""The plans of a worker that shares named resources: by the delayed protocol (KIP-415) where the group agreed on it."""

from muster.client.calls.transport import now_ms
from muster.client.config import WorkerConfig
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member import DelayedLeader
from muster.client.membership.leader_planner import PlanMaker
from muster.coordinator.core.model.types import DELAYED


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
