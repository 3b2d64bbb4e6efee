"""Whose quota counts for a request, in Kafka's order of precedence (ClientQuotaManager), and what is shared by whom."""

from collections.abc import Mapping
from typing import NamedTuple

from muster.coordinator.security.facts import QuotaEntity
from muster.coordinator.security.names import CLIENT_ID, IP, USER

MAX_NAME_CHARS = 1_024
"""Of a client's id that can have a quota; one that is longer counts as what it begins with."""

MAX_KEPT_LOOKUPS = 10_000
"""Answers that are kept: names of clients are theirs to choose."""

QuotaHolder = tuple[str | None, str | None]
"""A user and a client id, of which either may be left out."""


class AppliedQuota(NamedTuple):
    """A figure, and whose use counts against it: of a user's, all clients' together."""

    quota: float
    shared_by: QuotaHolder


class QuotaTable:
    """All that is set of one quota."""

    def __init__(self, name: str, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.name = name
        self._set: dict[QuotaEntity, float] = {
            entity: figures[name] for entity, figures in quotas.items() if name in figures
        }
        self._known: dict[tuple[str, str], AppliedQuota | None] = {}

    def __bool__(self) -> bool:
        return bool(self._set)

    def of(self, user: str, client: str) -> AppliedQuota | None:
        """None: there is none."""
        key = (user, client if len(client) <= MAX_NAME_CHARS else client[:MAX_NAME_CHARS])
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= MAX_KEPT_LOOKUPS:
                self._known.clear()
            found = self._known[key] = self._looked_up(*key)
            return found

    def of_address(self, ip: str) -> float | None:
        own = self._set.get(((IP, ip),))
        return own if own is not None else self._set.get(((IP, None),))

    def _looked_up(self, user: str, client: str) -> AppliedQuota | None:
        both = ((CLIENT_ID, client), (USER, user))
        for entity, shared_by in (
            (both, (user, client)),
            (((CLIENT_ID, None), (USER, user)), (user, client)),
            (((USER, user),), (user, None)),
            (((CLIENT_ID, client), (USER, None)), (user, client)),
            (((CLIENT_ID, None), (USER, None)), (user, client)),
            (((USER, None),), (user, None)),
            (((CLIENT_ID, client),), (None, client)),
            (((CLIENT_ID, None),), (None, client)),
        ):
            quota = self._set.get(entity)
            if quota is not None:
                return AppliedQuota(quota, shared_by)
        return None
