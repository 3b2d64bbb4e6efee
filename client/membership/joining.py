"""`group.protocol=central` on the ordinary consumer: one stream, by which the coordinator stops and starts it."""

from collections.abc import Callable

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.members.report import RequestedSubscription
from muster.client.membership.central_driver import CentralDriver, ReportedPositions
from muster.client.membership.driver import build_member_settings
from muster.client.membership.seam import Interest, Wake
from muster.client.membership.store import CentralStore


class CentralJoining:
    """`positions`: what the consumer has done; its coordinator commits that."""

    resolves_patterns = True
    reports_positions = True

    def __init__(
        self, config: ConsumerConfig, transport: Transport, positions: Callable[[], ReportedPositions]
    ) -> None:
        assert config.group_id is not None, "the properties were checked"
        self.store = CentralStore(GroupCalls(transport, config.group_id, "central"))
        self._config = config
        self._transport = transport
        self._positions = positions

    async def open(self) -> None:
        """Nothing to do: bootstrap.servers says where to begin."""

    def membership(self, interest: Interest, wake: Wake) -> CentralDriver:
        wish = RequestedSubscription(interest.topics, interest.regex, choose_assignor(self._config))
        settings = build_member_settings(self._config)
        rack = self._config.client_rack
        return CentralDriver(self._transport, self.store, settings, wish, wake, self._reported, rack)

    async def close(self) -> None:
        """Nothing of its own is open."""

    def _reported(self) -> ReportedPositions | None:
        return self._positions() if self._config.auto_commits else None


def choose_assignor(config: ConsumerConfig) -> str:
    """How the group assigns: group.remote.assignor, else the first of partition.assignment.strategy."""
    return config.group_remote_assignor or config.partition_assignment_strategy.split(",")[0].strip()
