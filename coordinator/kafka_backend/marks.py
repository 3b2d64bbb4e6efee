"""What the upstream is asked to remember of the state topic, so that a node knows whether there was one before.

A node has no data directory; what is written into the topic goes with it, and so do all groups' positions in it. Its
name among the transactional ids stays: that lies in a topic of Kafka's own, takes no right that a node does not need
anyhow (it begins with `{cluster}.shard-`), and can be asked for without a change. Two are kept: one of the topic's
name, and one that has its id and its number of partitions as well.

The upstream forgets them `transactional.id.expiration.ms` (7 days) after they were used last. Nodes use them anew, so
that a topic that is gone is taken for one that never was only where no node has run for so long. An upstream older
than Kafka 3.0 cannot be asked (KIP-664): there it is noticed by nodes that run, and not by one that starts.
"""

import base64
from typing import Final

from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.upstream.errors import Unspoken
from muster.coordinator.kafka_backend.upstream.producers import is_transactional_id_known, remember_transactional_id
from muster.coordinator.kafka_backend.upstream.upstream import Upstream

PATIENCE_S: Final = 5.0


class TopicMarks:
    """Of one state topic's name. Everything here raises UpstreamError."""

    def __init__(self, upstream: Upstream, cluster: str, name: str, patience_s: float = PATIENCE_S) -> None:
        """patience_s: so long the coordinator of a transactional id may be on its way."""
        self._patience_s = patience_s
        self._upstream = upstream
        self._any = f"{cluster}.shard-topic.{name}"

    async def remembers(self) -> bool:
        """Whether there was a topic of that name; no where the upstream cannot be asked."""
        return await self._is_known(self._any)

    async def knows(self, topic: UpstreamTopic) -> bool:
        """Whether it was this one; no where the upstream cannot be asked."""
        return await self._is_known(self._of(topic))

    async def write(self, topic: UpstreamTopic) -> None:
        """This is the one, from now on and again."""
        for transactional_id in (self._of(topic), self._any):
            await remember_transactional_id(self._upstream, transactional_id, self._patience_s)

    async def _is_known(self, transactional_id: str) -> bool:
        try:
            return await is_transactional_id_known(self._upstream, transactional_id, self._patience_s)
        except Unspoken:
            return False

    def _of(self, topic: UpstreamTopic) -> str:
        return f"{self._any}.{id_text(topic.id)}.{topic.partitions}"


def id_text(topic_id: bytes) -> str:
    """As Kafka's tools print it.

    >>> id_text(bytes(range(16)))
    'AAECAwQFBgcICQoLDA0ODw'
    """
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
