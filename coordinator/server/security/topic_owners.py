"""Who made which topic, kept in `__security` while a quota counts topics (`topic_count`)."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

import structlog

from muster.coordinator.security.facts import SecurityRecord, TopicKey, TopicOwner
from muster.coordinator.security.names import TOPIC_COUNT
from muster.coordinator.security.quotas import NodeQuotas
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.errors import StorageError

log = structlog.get_logger("muster.security")

MOST_FORGOTTEN: Final = 1_000
"""Topics that are gone, and are forgotten with one write."""


class CreatedTopic(Protocol):
    @property
    def id(self) -> bytes: ...


class TopicOwners:
    """`topics` are those there are."""

    def __init__(
        self, store: SecurityStore, quotas: NodeQuotas, topics: Callable[[], Mapping[str, CreatedTopic]]
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._topics = topics

    @property
    def kept(self) -> bool:
        return TOPIC_COUNT in self._quotas.counts

    def room(self, user: str) -> int | None:
        """How many more topics the user may make; None: as many as it likes."""
        most = self._quotas.count_of(TOPIC_COUNT, user)
        if most is None:
            return None
        return max(0, most - sum(1 for name, owner in self._there() if owner.user == user))

    def why(self, user: str) -> str:
        return f"user {user} has made as many topics as its quota allows ({TOPIC_COUNT})"

    async def made(self, user: str, names: Iterable[str]) -> None:
        """These are the user's from now on. Where that cannot be kept they are nobody's: made they are."""
        if not self.kept:
            return
        made = list(names)

        async def kept() -> None:
            topics, known = self._topics(), self._store.state.topic_owners
            changes = [
                SecurityRecord(TopicKey(name), TopicOwner(user, topics[name].id)) for name in made if name in topics
            ]
            gone = (name for name in known if name not in topics)
            changes += [SecurityRecord(TopicKey(name), None) for name in islice(gone, MOST_FORGOTTEN)]
            await self._store.write(changes)

        try:
            await self._store.settled(kept)
        except StorageError as error:
            log.warning("who made these topics is not kept", user=user, why=str(error))

    def _there(self) -> Iterable[tuple[str, TopicOwner]]:
        topics = self._topics()
        for name, owner in self._store.state.topic_owners.items():
            if name in topics and topics[name].id == owner.id:
                yield name, owner
