"""Waiting for the first share of a group, as long as the group itself waits for somebody."""

import logging
from collections.abc import Sequence

from muster.client.aio import AsyncAdmin
from muster.client.config import WorkerConfig
from muster.client.described import GroupDescription
from muster.spark.errors import NoShare

log = logging.getLogger("muster.spark")

SHOWN_MEMBERS = 5
PATIENT_TURNS = 2
"""How many times in a row a group may give nothing without waiting for anybody: it may be between two steps."""


class SharePatience:
    """Asked after every default.api.timeout.ms without a share; NoShare when there is nothing to wait for."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._idle_turns = 0
        self._told: tuple[str, ...] = ()

    async def turn(self) -> None:
        """Whom the group waits for, in the log. Raises NoShare, and what a node that is away or refuses raises."""
        assert self._config.group_id is not None, "only members wait for a share"
        names = {"bootstrap.servers": self._config.bootstrap_servers}
        async with AsyncAdmin(names, default_api_timeout_ms=self._config.default_api_timeout_ms) as admin:
            group = await admin.describe_group(self._config.group_id)
        if group.waiting_until_ms:
            self._idle_turns = 0
            self._tell(group)
            return
        self._idle_turns += 1
        if self._idle_turns >= PATIENT_TURNS:
            waited_ms = self._idle_turns * self._config.default_api_timeout_ms
            raise NoShare(
                group.group_id, waited_ms, group.state, describe_members(group, [m.member_id for m in group.members])
            )

    def _tell(self, group: GroupDescription) -> None:
        if group.waiting_for != self._told:
            self._told = group.waiting_for
            log.warning(
                "group %r gives no share yet: it waits for %s to finish a batch and poll, at most until that member's "
                "max.poll.interval.ms or its session is over",
                group.group_id,
                describe_members(group, group.waiting_for),
            )


def describe_members(group: GroupDescription, members: Sequence[str]) -> str:
    """Members by id and address."""
    hosts = {member.member_id: member.client_host for member in group.members}
    names = [f"{member} at {hosts.get(member) or 'an unknown address'}" for member in list(members)[:SHOWN_MEMBERS]]
    more = len(members) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "") or "nobody in particular"
