"""Who may do what, looked up and changed, for whichever door asks. The caller's right to that is checked before."""

import asyncio
from collections.abc import Sequence
from typing import Final

from muster.coordinator.security.facts import AclKey, SecurityRecord
from muster.coordinator.security.filters import AclFilter, find_entries
from muster.coordinator.security.model import Acl
from muster.coordinator.security.validation import MOST_ACLS
from muster.coordinator.server.security.security_store import SecurityStore

MOST_COMPARED: Final = 100_000
"""Entries times filters that are compared at once; more of them are, in a thread."""


class TooManyAcls(ValueError):
    """There is no room for more."""


class NodeAcls:
    """The lists of a SecurityStore. What is refused changes nothing; of what the disk fails, a part may stand."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store

    async def described(self, wanted: AclFilter) -> list[Acl]:
        (matching,) = await self._found([wanted])
        return matching

    async def create(self, acls: Sequence[Acl]) -> None:
        """Those that are there already stay. Raises TooManyAcls, StorageError."""

        async def made() -> None:
            there = self._store.state.acls
            fresh = [acl for acl in dict.fromkeys(acls) if acl not in there]
            if len(there) + len(fresh) > MOST_ACLS:
                raise TooManyAcls(
                    f"{len(there)} entries are there, and {len(fresh)} to come; expected at most {MOST_ACLS}"
                )
            await self._store.write_all([SecurityRecord(AclKey(acl), acl) for acl in fresh])

        await self._store.settled(made)

    async def delete(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]:
        """Take away what each filter means, and tell it. Raises StorageError."""
        told: list[dict[Acl, None]] = [{} for _ in wanted]

        async def gone() -> None:
            matching = await self._found(wanted)
            for each, found_now in zip(told, matching, strict=True):
                each.update(dict.fromkeys(found_now))
            all_of_them = dict.fromkeys(acl for some in matching for acl in some)
            await self._store.write_all([SecurityRecord(AclKey(acl), None) for acl in all_of_them])

        await self._store.settled(gone)
        return [list(each) for each in told]

    async def _found(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]:
        there = self._store.state.acls
        if len(there) * sum(each.exact() is None for each in wanted) <= MOST_COMPARED:
            return [find_entries(there, each) for each in wanted]
        copied = frozenset(there)
        return await asyncio.to_thread(lambda: [find_entries(copied, each) for each in wanted])
