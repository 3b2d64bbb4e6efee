"""Asks other nodes at the door between nodes where logs begin and end which they lead (see `ends.Ask`), and which
groups that are theirs have settings."""

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.ends import EARLIEST, PartitionKey
from muster.coordinator.replication.io.wire.links import LinkSettings, NodeLinks, address_in
from muster.coordinator.replication.io.wire.reaching import LinkError
from muster.coordinator.replication.io.wire.words import GroupsWithSettings, LogEndsQuery
from muster.coordinator.replication.protocol.image import ClusterImage

CLIENT_PATIENCE_S: Final = 2.0

log = structlog.get_logger("muster.cluster")


class LogEndsClient:
    """Questions have links of their own: an answer may take its time."""

    def __init__(self, image: ClusterImage, calling: LinkSettings) -> None:
        self._image = image
        self._links = NodeLinks(calling, lambda node: address_in(image, node))

    def close(self) -> None:
        self._links.close()

    async def groups_with_settings(self, node: int) -> GroupsWithSettings:
        """Of those that the node coordinates; COORDINATOR_NOT_AVAILABLE where it does not say."""
        try:
            link = await self._links.to(node)
            return await link.groups_with_settings(deadline_s=CLIENT_PATIENCE_S)
        except LinkError as error:
            log.debug("a node does not say which groups have settings", node=node, why=str(error))
            return GroupsWithSettings(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def __call__(self, node: int, places: Sequence[PartitionKey], timestamp: int) -> Mapping[PartitionKey, int]:
        topics = self._image.topics
        known = tuple((topics[topic].topic_id, number) for topic, number in places if topic in topics)
        try:
            link = await self._links.to(node)
            told = await link.log_ends(LogEndsQuery(timestamp == EARLIEST, known), deadline_s=CLIENT_PATIENCE_S)
        except LinkError as error:
            log.debug("a node does not say where logs end", node=node, why=str(error))
            return {}
        names = self._image.names
        return {(names[each.topic_id], each.partition): each.offset for each in told if each.topic_id in names}
