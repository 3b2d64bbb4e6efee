"""ACLs, tokens and quotas of all nodes over one Kafka, in the topic `{cluster}.security`, as a node enforces them.

Any node changes them, and enforces a change when it returns; the others enforce it as soon as they read it, which
they do all the time. A node that has not read to the end for STALE_S no longer decides by them: group requests are
refused until it has caught up, so that a right that was taken away is gone everywhere by then. The topic is checked
before the state topic is created, and read before the node answers.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.edge.cluster_view import wall_ms
from muster.coordinator.kafka_backend import security_topic
from muster.coordinator.kafka_backend.security_topic import (
    APART_S,
    SecurityLog,
    SecurityOwnerSuperseded,
    SecurityTopicDamaged,
)
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ShardRecord
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.node_status import GROUPS, Conditions
from muster.coordinator.security.quota_rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    TOPIC_COUNT,
)
from muster.coordinator.security.records import UnreadableSecurityRecord, decode_security_record, encode_security_record
from muster.coordinator.security.state import SecretKey, SecurityRecord
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from muster.coordinator.server.security.security_store import (
    ConcurrentSecurityChange,
    FollowedSecurityStore,
    SecurityDamaged,
    SecurityRead,
    SecurityUnavailable,
    SecurityWriteTimedOut,
)
from muster.coordinator.server.security.security_store import (
    Record as Written,
)
from muster.storage.errors import StorageError

if TYPE_CHECKING:
    from muster.coordinator.server.security.node_security import NodeSecurity


STALE_S: Final = 30.0
TOLD_S: Final = 5.0
"""After so long an operator hears that nothing is read."""
DEADLINE_S: Final = 10.0
"""Of a change, from its decision to its force."""

BEGUN_BY: Final = SecretKey("begun")
BEGUN: Final = SecurityRecord(BEGUN_BY, b"1")
"""A secret that is none: this topic was begun by a node, so that one without it is another's, or was emptied."""

BEHIND: Final = "security-behind"
CURE: Final = (
    "a node does not go on without knowing who may do what; look what became of it, or give up all lists, tokens and "
    "quotas with 'muster engine init --security'"
)

log = structlog.get_logger("muster.security")


class UpstreamSecurityStore(FollowedSecurityStore):
    """`know`, then as its base; `stop`. Users are the upstream's own."""

    keeps_users = False
    quotas_elsewhere = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, TOPIC_COUNT})

    def __init__(self, upstream: Upstream, topic: str, *, node: int, instance: str, wall_ms: Callable[[], int]) -> None:
        super().__init__(None)
        self._log_there = SecurityLog(
            upstream,
            topic,
            node=node,
            instance=instance,
            wall_ms=wall_ms,
            truth=self._truth,
            on_fenced=self._passed_over,
        )

    def load(self) -> None:
        """Nothing is on this node's disk; see `know`."""

    async def know(self, failed: Callable[[BaseException], None]) -> None:
        """Returns once all that is there is in force here: nobody may be answered before. failed: hears why the node
        may not go on. Raises SecurityDamaged, StorageError."""
        topic = self._log_there.topic
        try:
            await self._log_there.load(self._apply_records)
        except (SecurityTopicDamaged, UnreadableSecurityRecord) as error:
            raise self._unusable(error) from error
        except UpstreamError as error:
            raise StorageError(f"who may do what cannot be read from the upstream's {topic}: {error}") from error
        if BEGUN_BY.name not in self.state.secrets:
            raise SecurityDamaged(
                f"the upstream's {topic} has no beginning: no node made it, or it was emptied; {CURE}"
            )
        self._follow(self._read_on, failed)

    def stale(self) -> str:
        """Why nobody is judged by what is in force here; empty: it is what all nodes have."""
        return "" if self._log_there.behind_s <= STALE_S else self.behind()

    def behind(self) -> str:
        """A sentence where nothing has been read for a while; else empty."""
        if self._log_there.behind_s <= TOLD_S:
            return ""
        return (
            f"who may do what has not been read from the upstream's {self._log_there.topic} for "
            f"{self._log_there.behind_s:.0f} s ({self._log_there.why}); after {STALE_S:.0f} s nothing is decided by it"
        )

    # -- what comes ---------------------------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        try:
            await self._log_there.run(self._apply_records)
        except (SecurityTopicDamaged, UnreadableSecurityRecord) as error:
            raise self._unusable(error) from error

    def _apply_records(self, records: Sequence[ShardRecord]) -> None:
        """Raises Unreadable: what this version cannot read would leave it without knowing who may do what."""
        self._in_force([change for record in records if (change := decode_change(record)) is not None])

    def _unusable(self, error: Exception) -> SecurityDamaged:
        if isinstance(error, SecurityTopicDamaged):
            return SecurityDamaged(f"{error}; {CURE}")
        return SecurityDamaged(
            f"the upstream's {self._log_there.topic}: {error}; is a node of another version among those of this "
            f"cluster? {CURE}"
        )

    def _truth(self, key: bytes) -> bytes | None:
        """Of what nobody can read there is none."""
        try:
            changed = decode_security_record(key, None).key
        except UnreadableSecurityRecord:
            return None
        value = self.state.value(changed)
        return None if value is None else encode_security_record(SecurityRecord(changed, value))[1]

    def _passed_over(self, count: int) -> None:
        log.warning(
            "security records of an unauthorized writer were skipped",
            topic=self._log_there.topic,
            records=count,
        )

    # -- what goes there ----------------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        async with self._writing:
            await self._owned()

    async def _step_aside(self) -> None:
        await asyncio.sleep(random.uniform(0, APART_S))

    async def _owned(self) -> None:
        """Raises SecurityUnavailable."""
        topic = self._log_there.topic
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._log_there.own()
        except TimeoutError:
            raise SecurityUnavailable(
                f"{topic} was not changed within {DEADLINE_S:g} s: {self._log_there.why}"
            ) from None
        except UpstreamError as error:
            raise SecurityUnavailable(f"{topic} was not changed: {error}") from error

    async def _write(self, records: Sequence[Written], changes: Sequence[SecurityRecord], seen: SecurityRead) -> None:
        """Raises ConcurrentSecurityChange, SecurityUnavailable, StorageError."""
        async with self._writing:
            await self._owned()
            if any(self.state.value(change.key) != seen.get(change.key) for change in changes):
                raise ConcurrentSecurityChange
            topic = self._log_there.topic
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self._log_there.append(records)
            except TimeoutError:
                why = f"whether {topic} was changed is not known after {DEADLINE_S:g} s: {self._log_there.why}"
                raise SecurityWriteTimedOut(why) from None
            except SecurityOwnerSuperseded:
                raise ConcurrentSecurityChange from None
            except UpstreamRefused as error:
                raise StorageError(f"{topic} was not changed: {error}") from error
            except UpstreamError as error:
                raise SecurityWriteTimedOut(f"whether {topic} was changed is not known: {error}") from error


def decode_change(record: ShardRecord) -> SecurityRecord | None:
    """None: what nobody can read is taken back. Raises Unreadable."""
    try:
        return decode_security_record(record.key or b"", record.value)
    except UnreadableSecurityRecord:
        if record.value is None:
            return None
        raise


# The node's part: before its groups, before its answers
# ------------------------------------------------------


async def prepare_security(settings: Settings, upstream: Upstream, *, anew: bool = False) -> None:
    """Before the state topic is made: the topic of rights comes first, so that a node which finds the one finds the
    other. anew: an operator wants it made. Raises UnusableUpstream, UpstreamError."""
    topic = settings.security_topic
    if settings.authorizer == "none":
        if await security_topic.security_topic_exists(upstream, topic):
            raise UnusableUpstream(
                f"authorizer is none, but the upstream has {topic}: other nodes of the cluster ask who may do what, "
                "and whoever reaches this one would need no right; set authorizer=acl as at the others"
            )
        return
    await security_topic.prepare_security_topic(
        upstream,
        topic,
        replication=settings.engine_kafka_state_replication_factor,
        id_base=settings.engine_kafka_node_id_base,
        new=anew or await security_topic.is_new_cluster(upstream, settings.state_topic, settings.engine_kafka_cluster),
        mark=[(*encode_security_record(BEGUN), None)],
        now_ms=wall_ms(),
    )


class UpstreamSecurity:
    """`share`, then `judge` once there is an engine; `report_conditions` every now and then."""

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        instance: str,
        fail: Callable[[BaseException], None],
    ) -> None:
        """fail: hears why the node may not go on."""
        self.store = UpstreamSecurityStore(
            upstream, settings.security_topic, node=settings.node_id, instance=instance, wall_ms=wall_ms
        )
        self._fail = fail

    async def share(self, security: "NodeSecurity") -> None:
        """Returns once it is known who may do what. Raises SecurityDamaged, StorageError."""
        await self.store.know(self._fail)
        await security.start()

    def judge(self, engine: GatedEngine) -> None:
        """What the engine is asked is refused while nobody knows."""
        engine.doubts = self.store.stale

    def report_conditions(self, conditions: Conditions) -> None:
        if sentence := self.store.behind():
            conditions.report(BEHIND, sentence, impairs=GROUPS)
        else:
            conditions.clear(BEHIND)

    def stop(self) -> None:
        self.store.stop()
