"""The quotas that are set, for both doors: found by a filter, changed with a check, kept in `__security`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from muster.coordinator.security.facts import Change, QuotaEntity, QuotaKey
from muster.coordinator.security.quotas.checks import BadQuota, checked_entity, checked_value, matching
from muster.coordinator.server.security.store import SecurityStore

MOST_ENTITIES: Final = 10_000
"""That have quotas of their own; defaults are for the others."""


Alteration: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have: a figure by each name, None to take it away."""


class QuotaBook:
    """Lives on the event loop."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store
        self._altering = asyncio.Lock()

    def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Raises BadQuota."""
        return matching(self._store.state.quotas, wanted, strict=strict)

    async def alter(self, wanted: Sequence[Alteration], *, validate_only: bool) -> list[str]:
        """Each for itself: empty, or why it was refused. What was not is in force on return. Raises StorageError."""
        async with self._altering:
            now = self._store.state.quotas
            then: dict[QuotaEntity, dict[str, float]] = {}
            told = []
            for parts, ops in wanted:
                try:
                    entity = checked_entity(parts)
                    if entity in then:
                        raise BadQuota("the request names this entity twice; expected each once")
                    figures = altered(entity, now.get(entity, {}), ops)
                    if entity not in now and len(now.keys() | then.keys()) >= MOST_ENTITIES:
                        raise BadQuota(f"{MOST_ENTITIES} entities have quotas; remove some, or set a default")
                except BadQuota as error:
                    told.append(str(error))
                    continue
                then[entity] = figures
                told.append("")
            changes = [
                Change(QuotaKey(entity), figures or None)
                for entity, figures in then.items()
                if figures != now.get(entity, {})
            ]
            if not validate_only:
                await self._store.write_all(changes)
        return told


def altered(
    entity: QuotaEntity, before: Mapping[str, float], ops: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """Its figures then. Raises BadQuota."""
    names = [name for name, _ in ops]
    figures = dict(before)
    for name, value in ops:
        if names.count(name) > 1:
            raise BadQuota(f"{name!r} is changed twice; expected once")
        if value is None:
            figures.pop(name, None)
        else:
            figures[name] = checked_value(entity, name, value)
    return figures
