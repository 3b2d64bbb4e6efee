"""Finds groups of Muster's that have members at the real brokers, past every node (KB-X9).

Such a group is in two halves that know nothing of each other, and each record is read twice. Periodically all
brokers are asked which groups they have, and which members are in those that are Muster's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

PERIOD_MS: Final = 30_000

KINDS: Final = frozenset({"", "classic", "consumer"})
"""Types of groups that could be Muster's: no share groups, no streams groups."""

OWN_PROTOCOL: Final = "muster"
"""The protocol type of the groups of Muster's own nodes, this cluster's or another's."""

AT_REST: Final = frozenset({"empty", "dead"})
MOST_GROUPS: Final = 10_000
"""Groups that are asked about in one round; what is beyond them is found when these are put right."""

MEMBERS_NAMED: Final = 3
GROUPS_NAMED: Final = 5


class ForeignMembers(NamedTuple):
    """A group of ours that has members upstream, and some of these."""

    group: str
    members: int
    some: Sequence[group_requests.UpstreamMember]

    def __str__(self) -> str:
        named = ", ".join(f"{each.client_id or each.id} at {each.host or 'unknown host'}" for each in self.some)
        more = f" and {self.members - len(self.some)} more" if self.members > len(self.some) else ""
        return f"{self.group} ({named}{more})"


class ForeignMemberGuard:
    """`start` and `stop`; `found` is what the last round found."""

    def __init__(
        self,
        upstream: Upstream,
        ours: Callable[[str], bool],
        *,
        period_ms: int = PERIOD_MS,
        on_found: Callable[[Mapping[str, ForeignMembers]], None] = lambda found: None,
    ) -> None:
        """ours: whether a group is Muster's, by its id. on_found hears what each round found, be it nothing."""
        self._upstream = upstream
        self._ours = ours
        self._period_s = period_ms / 1_000
        self._on_found = on_found
        self._running = RestartedTask("look for members past this node", self._run)
        self.found: Mapping[str, ForeignMembers] = {}

    def start(self) -> None:
        self._running.start()

    async def stop(self) -> None:
        await self._running.stop()

    async def find_foreign_members(self) -> Mapping[str, ForeignMembers]:
        """One round. What a broker that does not answer had the time before stays."""
        found: dict[str, ForeignMembers] = {}
        for broker in sorted(self._upstream.view.brokers):
            try:
                found.update(await self._at(broker))
            except UpstreamError:
                found.update({name: each for name, each in self.found.items() if name not in found})
        self.found = found
        self._on_found(found)
        return found

    async def _at(self, broker: int) -> dict[str, ForeignMembers]:
        there = [each for each in await group_requests.list_groups(self._upstream, broker) if self._asks_about(each)][
            :MOST_GROUPS
        ]
        found: dict[str, ForeignMembers] = {}
        for begin in range(0, len(there), group_requests.AT_ONCE):
            some = there[begin : begin + group_requests.AT_ONCE]
            for name, group in (await group_requests.describe_groups(self._upstream, broker, some)).items():
                if group.members:
                    found[name] = ForeignMembers(name, len(group.members), group.members[:MEMBERS_NAMED])
        return found

    def _asks_about(self, group: group_requests.ListedUpstreamGroup) -> bool:
        return (
            group.kind.lower() in KINDS
            and group.protocol_type != OWN_PROTOCOL
            and group.state.lower() not in AT_REST
            and self._ours(group.group)
        )

    async def _run(self) -> None:
        while True:
            await self.find_foreign_members()
            await asyncio.sleep(self._period_s)


def foreign_members_sentence(found: Mapping[str, ForeignMembers]) -> str:
    """For operators; empty where nobody was found."""
    if not found:
        return ""
    named = "; ".join(str(found[group]) for group in sorted(found)[:GROUPS_NAMED])
    more = f"; and {len(found) - GROUPS_NAMED} groups more" if len(found) > GROUPS_NAMED else ""
    return (
        f"members of groups of ours read at the real brokers, past Muster, so that their groups are in two halves and "
        f"records are read twice: {named}{more}. Give these clients Muster's addresses; `muster engine acls` prints "
        "what shuts that door"
    )
