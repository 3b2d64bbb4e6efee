"""The quotas that are set, for both doors: found by a filter, changed with a check, kept in `__security`."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError
from muster.coordinator.security.checks import InvalidQuota, check_entity, check_value, filter_quotas
from muster.coordinator.security.facts import QuotaEntity, QuotaKey, SecurityRecord
from muster.coordinator.server.security.security_store import ConcurrentSecurityChange, SecurityStore, error_code_for
from muster.storage.errors import StorageError

MOST_ENTITIES: Final = 10_000
"""That have quotas of their own; defaults are for the others."""

AT_ONCE: Final = 100
"""Alterations in one step of the loop."""


Alteration: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have: a figure by each name, None to take it away."""


class ConfiguredQuotas:
    """Lives on the event loop."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store
        self._altering = asyncio.Lock()

    async def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Raises BadQuota."""
        there = dict(self._store.state.quotas)
        return await run_off_loop_if_large(lambda: filter_quotas(there, wanted, strict=strict), len(there))

    async def alter(self, wanted: Sequence[Alteration], *, validate_only: bool) -> list[str]:
        """Each for itself: empty, or why it was refused. What was not is in force on return.

        Raises CoordinatorError.
        """
        async with self._altering:
            try:
                return await self._store.settled(lambda: self._alter(wanted, validate_only=validate_only))
            except (StorageError, ValueError) as error:
                raise CoordinatorError(error_code_for(error), str(error)) from error

    async def _alter(self, wanted: Sequence[Alteration], *, validate_only: bool) -> list[str]:
        now = self._store.state.quotas
        then: dict[QuotaEntity, dict[str, float]] = {}
        before: dict[QuotaEntity, dict[str, float] | None] = {}
        told = []
        kept = len(now)
        for number, (parts, ops) in enumerate(wanted, 1):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # Nobody else changes quotas meanwhile, or the change is decided anew.
            try:
                entity = check_entity(parts)
                if entity in then:
                    raise InvalidQuota("the request names this entity twice; expected each once")
                figures = apply_quota_ops(entity, now.get(entity, {}), ops)
                self._are_kept(name for name, value in ops if value is not None)
                if entity not in now:
                    if kept >= MOST_ENTITIES:
                        raise InvalidQuota(f"{MOST_ENTITIES} entities have quotas; remove some, or set a default")
                    kept += 1
            except InvalidQuota as error:
                told.append(str(error))
                continue
            then[entity] = figures
            before[entity] = now.get(entity)
            told.append("")
        if any(now.get(entity) != figures for entity, figures in before.items()):
            raise ConcurrentSecurityChange
        changes = [
            SecurityRecord(QuotaKey(entity), figures or None)
            for entity, figures in then.items()
            if figures != now.get(entity, {})
        ]
        if not validate_only:
            await self._store.write_all(changes)
        return told

    def _are_kept(self, names: Iterable[str]) -> None:
        """Raises BadQuota."""
        for name in names:
            if name in self._store.quotas_elsewhere:
                raise InvalidQuota(
                    f"{name} is kept by the brokers of the Kafka that is this node's engine, where records and topics "
                    "are; set it there (kafka-configs.sh)"
                )


def apply_quota_ops(
    entity: QuotaEntity, before: Mapping[str, float], ops: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """Its figures then. Raises BadQuota."""
    times = Counter(name for name, _ in ops)
    figures = dict(before)
    for name, value in ops:
        if times[name] > 1:
            raise InvalidQuota(f"{name!r} is changed twice; expected once")
        if value is None:
            figures.pop(name, None)
        else:
            figures[name] = check_value(entity, name, value)
    return figures
