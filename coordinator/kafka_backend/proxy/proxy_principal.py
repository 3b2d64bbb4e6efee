"""Checks that the principal of clients with certificates may not change what is Muster's own in the upstream (KB-X10).

Every client with a certificate comes to the brokers as this principal. With a right to write the state topic, or to
change rights, each client could make of groups what it likes, whatever Muster's ACLs say. So the brokers are asked,
as this principal, before a node starts and periodically while it runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from muster.coordinator.config import Settings
from muster.coordinator.edge.background_tasks import BackgroundTask
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.protocol import ALTER, ALTER_CONFIGS, DELETE, OPERATIONS_NOT_REQUESTED, READ, WRITE
from muster.coordinator.kafka_backend.backend_settings import proxy_address_of
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.connection import UpstreamConnection
from muster.coordinator.kafka_backend.upstream.protocol import WAIT_FOR_COORDINATOR, UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import TRANSACTION, Upstream

PERIOD_S: Final = 30.0
BY_METADATA: Final = 10
"""The last version of Metadata that tells rights on the cluster as well."""

CHANGES: Final = {WRITE: "WRITE", DELETE: "DELETE", ALTER: "ALTER", ALTER_CONFIGS: "ALTER_CONFIGS"}
READS: Final = {READ: "READ"}
ON_CLUSTER: Final = {ALTER: "ALTER", ALTER_CONFIGS: "ALTER_CONFIGS"}
ON_GROUP: Final = {READ: "READ", DELETE: "DELETE"}
"""What they must not be allowed: by its bit, its name."""

UNKNOWN_TOPIC: Final = 3
TOPIC_DENIED: Final = 29
GROUP_DENIED: Final = 30
TRANSACTIONAL_ID_DENIED: Final = 53


async def excess_rights(upstream: Upstream, state: str, security: str, cluster: str) -> list[str]:
    """What whoever `upstream` logs in as may do to what is Muster's, in words such as `WRITE on the topic m.state`;
    empty: all is well. state, security: topics; cluster: `engine.kafka.cluster`. Raises UpstreamError."""
    found = await excess_on_topics(upstream, {state: CHANGES, security: READS | CHANGES})
    for name in (f"{cluster}.shard-0", f"{cluster}.security"):
        if await sees_transactional_id(upstream, name):
            found.append(f"WRITE or DESCRIBE on the transactional id {name}")
    return found + await excess_on_group(upstream, f"{cluster}.nodes")


async def excess_on_topics(upstream: Upstream, unwanted: dict[str, dict[int, str]]) -> list[str]:
    """unwanted: by topic, which rights are."""
    asked = [struct("MetadataRequest.topics")(name=name) for name in unwanted]
    request = struct("MetadataRequest")(
        topics=asked,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )

    async def ask(line: UpstreamConnection) -> Any:
        frame = await line.ask_in(BY_METADATA, "Metadata", request, upstream.reach.answer_s)
        return line.read("Metadata", BY_METADATA, frame)

    answer, found = await upstream.by_any(ask), []
    for topic in answer.topics:
        if topic.error_code not in (0, UNKNOWN_TOPIC, TOPIC_DENIED):
            raise UpstreamRefused(f"asking for the rights to {topic.name}", topic.error_code)
        told = topic.topic_authorized_operations
        if not topic.error_code and told == OPERATIONS_NOT_REQUESTED:
            raise UpstreamError(f"the upstream does not tell the rights to {topic.name}; expected Apache Kafka")
        found += rights_in_words(told, unwanted[topic.name], f"the topic {topic.name}")
    return found + rights_in_words(answer.cluster_authorized_operations, ON_CLUSTER, "the cluster")


async def sees_transactional_id(upstream: Upstream, name: str) -> bool:
    """Brokers do not tell who may write by an id, but who may not even see it may not write by it, either."""
    request = struct("FindCoordinatorRequest")(key=name, key_type=TRANSACTION)
    code = (await upstream.any("FindCoordinator", request)).error_code
    if code not in (0, TRANSACTIONAL_ID_DENIED, *WAIT_FOR_COORDINATOR):
        raise UpstreamRefused(f"asking whether the transactional id {name} is to be seen", code)
    return bool(code != TRANSACTIONAL_ID_DENIED)


async def excess_on_group(upstream: Upstream, name: str) -> list[str]:
    request = struct("DescribeGroupsRequest")(groups=[name], include_authorized_operations=True)
    try:
        answer = await group_requests.ask_coordinator_of(
            upstream, name, "DescribeGroups", request, lambda told: told.groups[0].error_code
        )
    except UpstreamRefused as error:
        if error.code == GROUP_DENIED:
            return []
        raise
    return rights_in_words(answer.groups[0].authorized_operations, ON_GROUP, f"the group {name}")


def rights_in_words(bits: int, unwanted: dict[int, str], of: str) -> list[str]:
    """
    >>> rights_in_words(1 << WRITE | 1 << READ, CHANGES, "the topic muster.state")
    ['WRITE on the topic muster.state']
    >>> rights_in_words(OPERATIONS_NOT_REQUESTED, CHANGES, "the topic t")
    []
    """
    some = [name for bit, name in unwanted.items() if bits & 1 << bit]
    return [f"{' and '.join(some)} on {of}"] if some else []


class ProxyPrincipalCheck:
    """`check` before the node starts; then `start` and `stop`. `sentence` is what the last look came to, "" where all
    is well."""

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        *,
        period_s: float = PERIOD_S,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """upstream: reached as they are."""
        self._who = settings.engine_kafka_proxy_principal
        self._where = settings.state_topic, settings.security_topic, settings.engine_kafka_cluster
        self._upstream = upstream
        self._period_s = period_s
        self._running = BackgroundTask(on_bug)
        self.sentence = ""

    async def check(self) -> None:
        """Raises UnusableUpstream."""
        await self.check_rights()
        if self.sentence:
            self._upstream.close()
            raise UnusableUpstream(self.sentence)

    def start(self) -> None:
        self._running.start(self._run())

    async def stop(self) -> None:
        await self._running.stop()
        self._upstream.close()

    async def check_rights(self) -> None:
        try:
            found = await excess_rights(self._upstream, *self._where)
        except UpstreamError as error:
            self.sentence = self._no_way(error)
        else:
            self.sentence = self._too_much(found) if found else ""

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self.check_rights()

    def _no_way(self, error: UpstreamError) -> str:
        return (
            f"the brokers cannot be asked as engine.kafka.proxy.principal ({self._who}), as whom clients come to them: "
            f"{error}"
        )

    def _too_much(self, found: Sequence[str]) -> str:
        return (
            f"engine.kafka.proxy.principal is {self._who}, and the brokers allow {', '.join(found)} by its "
            "credentials. Every client that shows a certificate comes to them by these, and could change what is "
            "Muster's there. Take these rights away (`muster engine acls` prints what denies them; brokers without an "
            "authorizer allow all to everybody), or name credentials without them"
        )


def proxy_principal_check_of(settings: Settings, on_bug: Callable[[BaseException], None]) -> ProxyPrincipalCheck | None:
    """None where clients show the brokers themselves who they are, or nobody asks."""
    reach = proxy_address_of(settings)
    return None if reach is None else ProxyPrincipalCheck(settings, Upstream(reach), on_bug=on_bug)
