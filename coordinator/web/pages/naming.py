"""Short names of members for people: a client's own name wherever it says who is meant.

Of a client that came back under a new member id, the one that is in the group now has the plain name, and the one
before a bit of its id with it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from muster.coordinator.observability.views.formatting import Names
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance

BARE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""A UUID and nothing else, as members by KIP-848 choose it."""
KEPT = 4


class MemberNames(Names):
    """`clients`: the client id of each member that has one."""

    def __init__(self, member_ids: Iterable[str], clients: Mapping[str, str], present: Iterable[str] = ()) -> None:
        ids, here = {*member_ids} - {""}, {*present} - {""}
        super().__init__(ids | here)
        own = Names(here)
        plain = {member: self._plain(member, clients, own) for member in sorted(here)}
        taken = Counter(plain.values())
        for member, name in plain.items():
            self._short[member] = name if taken[name] == 1 else f"{name}-{member[:KEPT]}"
        past = {member: self._plain(member, clients, self) for member in sorted(ids - here)}
        taken.update(past.values())
        for member, name in past.items():
            self._short[member] = name if taken[name] == 1 else f"{name}-{member[:KEPT]}"
        self._longest_first = sorted(self._short, key=len, reverse=True)

    @staticmethod
    def _plain(member: str, clients: Mapping[str, str], names: Names) -> str:
        return clients.get(member, "") or member[:8] if BARE_ID.fullmatch(member) else names[member]


def name_members(
    entries: Iterable[Rebalance], present: Iterable[str] = (), clients: Mapping[str, str] | None = None
) -> MemberNames:
    """Over all members that the entries mention, and those who are `present`."""
    ids: set[str] = set()
    known: dict[str, str] = {}
    for entry in entries:
        ids.add(entry.culprit)
        known[entry.culprit] = entry.culprit_client_id
        known.update((member.member_id, member.client_id) for member in entry.members)
        ids.update(member.member_id for member in entry.members)
        ids |= {move.source for move in entry.moves} | {move.target for move in entry.moves}
        ids.update(member for phase in entry.phases for member in phase.waited_for)
    return MemberNames(ids, known | dict(clients or {}), present)
