"""Users, tokens, ACLs and quotas of a whole cluster, as one of its nodes has them.

The store reads from the leader of `__security` as far as that is committed. A change is made there, and is in force
here when the call returns. Two nodes that change the same thing concurrently cannot both override what they had not
seen: the second one decides again.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.cluster_view import monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.copy_repair import SecurityCopyRepair
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.security_log import PLACE, RETRY_S, SecurityFollower, SecurityLeader
from muster.coordinator.replication.io.wire.node_api import SecurityChange, SecurityUpdateResult
from muster.coordinator.replication.io.wire.node_links import LinkError, NodeLinks, address_in
from muster.coordinator.replication.protocol.cluster_metadata import SECURITY
from muster.coordinator.security.records import UnreadableSecurityRecord, encode_security_record
from muster.coordinator.security.state import SecretKey, SecurityRecord, SecurityState, diff_states
from muster.coordinator.server.cluster_backend.pending_changes import read_pending, remove_pending
from muster.coordinator.server.security.security_store import (
    SECURITY_TOPIC,
    ConcurrentSecurityChange,
    FollowedSecurityStore,
    Record,
    SecurityDamaged,
    SecurityRead,
    SecurityStore,
    SecurityUnavailable,
    SecurityWriteTimedOut,
)
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.topics.data_dir import PENDING_SECURITY

if TYPE_CHECKING:
    from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
    from muster.coordinator.server.security.node_security import NodeSecurity


# The store, over `__security` at its leader
# ------------------------------------------

DEADLINE_S: Final = 10.0
"""Of a change, from its decision to its force."""
TELL_S: Final = 10.0
"""How often somebody hears that this node waits."""

BEGUN: Final = "begun"
"""A secret that is none: there has been a change by somebody. What a node had for itself before is worth nothing
then."""

MAYBE_DONE: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""The leader may have appended it."""

log = structlog.get_logger("muster.security")


class SharedSecurityStore(FollowedSecurityStore):
    """`load` before the node joins its cluster, then `know`; `stop`."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._following: SecurityFollower | None = None
        self._fresh: SecurityState | None = None
        self._own: SecurityState | StorageError | None = None
        self._later = RestartedTask("users that wait in the data directory", self._bring_later, returns=True)
        self._known = asyncio.Event()
        self._marks = True

    def load(self) -> None:
        """What this node has kept for itself before it was one of many; that is of use as long as nobody has changed
        anything in the cluster. Blocks."""
        topic = self._broker.held_topics().get(SECURITY_TOPIC)
        if topic is None or topic.held is not None:
            return
        alone = SecurityStore(self._broker)
        try:
            alone.read()
        except StorageError as error:
            self._own = error
        else:
            self._own = alone.state

    async def know(self, following: SecurityFollower, failed: Callable[[BaseException], None], *, there: bool) -> None:
        """Returns once all that is committed now is in force here, however long that takes: nobody may be answered
        before. there: whether the cluster has anything of it; one that is new has not, and nobody is known in it.
        failed: told what the node may not go on with. Raises SecurityDamaged, StorageError."""
        self._following = following
        if not there and self._own is None:
            self._follow(partial(self._read_on, following), failed)
            self._later.start()
            return
        ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._follow(partial(self._read_on, following), ended.set_result)
        waiting = asyncio.create_task(self._known.wait())
        either: set[asyncio.Future[Any]] = {ended, waiting}
        while not self._known.is_set() and not ended.done():
            await asyncio.wait(either, timeout=TELL_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._known.is_set() and not ended.done():
                log.warning("requests wait until users and access control lists are known", why=following.why)
        waiting.cancel()
        if not ended.done():
            await self._bring()
        if ended.done():
            raise ended.result()
        self._following_failed = failed

    async def known(self) -> None:
        await self._known.wait()

    def stop(self) -> None:
        super().stop()
        self._later.cancel()
        if self._following is not None:
            self._following.close()

    # What comes from the leader (`SecuritySink`).

    def begin_reload(self) -> None:
        self._fresh = SecurityState()

    def apply_changes(self, changes: Sequence[SecurityRecord]) -> None:
        if self._fresh is not None:
            self._fresh.apply(changes)
        else:
            self._in_force(changes)

    def complete(self) -> None:
        fresh, self._fresh = self._fresh, None
        assert fresh is not None, "it has begun"
        if changes := diff_states(self.state, fresh):
            self._in_force(changes)
        self._known.set()

    async def _read_on(self, following: SecurityFollower) -> None:
        try:
            await following.run(self)
        except UnreadableSecurityRecord as error:
            raise SecurityDamaged(
                f"{SECURITY_TOPIC}: {error}; a node does not go on without knowing who may do what; is a node of "
                "another version among those of this cluster?"
            ) from error

    # What goes there.

    async def _catch_up(self) -> None:
        why = "what others have changed is not committed yet"
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    try:
                        await self._leader.latest()
                        return
                    except LinkError as error:
                        why = str(error)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError as error:
            raise SecurityUnavailable(f"{SECURITY_TOPIC} was not changed: {why}") from error

    @property
    def _leader(self) -> SecurityFollower:
        assert self._following is not None, "it is known"
        return self._following

    async def _write(self, records: Sequence[Record], changes: Sequence[SecurityRecord], seen: SecurityRead) -> None:
        """Raises ConcurrentSecurityChange, SecurityUnavailable, StorageError."""
        async with self._writing:
            told = _WriteProgress()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self._until_written(records, changes, seen, told)
            except TimeoutError as error:
                kind = SecurityWriteTimedOut if told.maybe_done else SecurityUnavailable
                raise kind(f"{SECURITY_TOPIC} was not changed within {DEADLINE_S:g} s: {told.why}") from error

    async def _until_written(
        self, records: Sequence[Record], changes: Sequence[SecurityRecord], seen: SecurityRead, told: "_WriteProgress"
    ) -> None:
        wanted = {change.key: change.value for change in changes}
        while True:
            now = {key: self.state.value(key) for key in wanted}
            if told.maybe_done and now == wanted:
                return
            if any(now[key] != seen[key] for key in wanted):
                raise ConcurrentSecurityChange
            try:
                written = await self._leader.write(
                    [SecurityChange(key, value) for key, value, _ in self._marked(records)]
                )
            except LinkError as error:
                told.maybe_done, told.why = True, str(error)
            else:
                if written.error is ErrorCode.NONE:
                    await self._leader.reaches(written.end)
                    return
                await self._refused(written, told)
            await asyncio.sleep(RETRY_S)

    async def _refused(self, written: SecurityUpdateResult, told: "_WriteProgress") -> None:
        told.why = f"its leader answers {written.error.name}"
        if written.error is ErrorCode.INVALID_UPDATE_VERSION:
            await self._leader.reaches(written.end)
        elif written.error in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR):
            raise StorageError(f"{SECURITY_TOPIC} was not changed: {told.why}; look at the log of that node")
        elif written.error in MAYBE_DONE:
            told.maybe_done = True

    def _marked(self, records: Sequence[Record]) -> Sequence[Record]:
        """With the first change that is somebody's."""
        if not self._marks or BEGUN in self.state.secrets or all(is_of_the_node(key) for key, _, _ in records):
            return records
        return [*records, (*encode_security_record(SecurityRecord(SecretKey(BEGUN), b"1")), None)]

    # What the node had before.

    async def _bring(self) -> None:
        """What this node had for itself, and what an operator has left for it to bring. Raises StorageError."""
        await self._known.wait()
        while True:
            try:
                await self._bring_own()
                await self._bring_pending()
            except SecurityUnavailable as error:
                log.warning("users from the data directory are not in the cluster yet", why=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _bring_later(self) -> None:
        """The node answers already; nothing is known that they could be weaker than."""
        try:
            await self._bring()
        except StorageError as error:
            log.error("users from the data directory cannot be added to the cluster", why=str(error))

    async def _bring_own(self) -> None:
        """Raises StorageError."""
        own = self._own
        if own is None:
            return
        if BEGUN in self.state.secrets:
            log.warning("users and lists of this node alone are ignored: its cluster has its own")
        elif isinstance(own, StorageError):
            raise own
        else:
            # Whole or not at all: a node that is killed on the way begins again.
            self._marks = False
            await self.settled(lambda: self.write_all(diff_states(self.state, own, only_come=True)))
            self._marks = True
            await self.settled(lambda: self.write([SecurityRecord(SecretKey(BEGUN), b"1")]))
            log.info("users and lists of this node now belong to its cluster")
        self._own = None

    async def _bring_pending(self) -> None:
        """Raises StorageError."""
        directory = Path(self._broker.data_dir)
        changes = await asyncio.to_thread(read_pending, directory)
        if not changes:
            return
        await self.settled(lambda: self.write_all(changes))
        try:
            await asyncio.to_thread(remove_pending, directory)
        except OSError as error:
            raise StorageError(
                f"{directory / PENDING_SECURITY} cannot be removed: {error.strerror or error}; what waited in it is "
                "known to the cluster, and would come again with the next start, over what is changed then: remove it"
            ) from error
        log.info("users from the data directory were added to the cluster", entries=len(changes))


def is_of_the_node(key: bytes) -> bool:
    """Whether it is nobody's, but what nodes made up.

    >>> is_of_the_node(encode_security_record(SecurityRecord(SecretKey("salts"), None))[0])
    True
    """
    return key.startswith(b'["secret",')


class _WriteProgress:
    """What became of a write so far."""

    def __init__(self) -> None:
        self.maybe_done = False
        self.why = "nobody was asked"


# A node's part, from the moment it has joined
# --------------------------------------------


async def follow_cluster_security(security: "NodeSecurity | None", joined: "ClusterBackend", disk: Broker) -> None:
    """Returns once it is known who may do what. disk: where this node's copies are.

    Raises SecurityDamaged, StorageError.
    """
    if security is None:
        if SECURITY in joined.side.image.topics:
            raise StorageError(
                "authorizer is none, but the other nodes of the cluster ask who may do what: whoever reaches this one "
                "would need no right for what is theirs; set authorizer=acl as at the others"
            )
        return
    store = security.store
    assert isinstance(store, SharedSecurityStore), "it was made for one of many"
    side = joined.side

    def failed(why: BaseException) -> None:
        if not side.failure.done():
            side.failure.set_exception(why)

    await store.know(security_follower_of(side, disk), failed, there=SECURITY in side.image.topics)
    security.topics = joined.broker.topics
    await security.start()


def security_follower_of(side: ReplicaManager, disk: Broker) -> SecurityFollower:
    """A node's part in `__security`, whether it leads that or not."""
    leading = SecurityLeader(disk, side.replicas, appended=side.appended, wall_ms=wall_ms, happened=side.settle)
    mending = SecurityCopyRepair(PLACE, side.replicas, side.logs)

    def look() -> None:
        if mending.repair_copy(monotonic_ms()):
            side.settle()

    side.desk.security = leading
    side.on_moved(leading.moved)
    side.on_learned(lambda changes: leading.moved(PLACE))
    return SecurityFollower(
        side.replicas.me,
        side.image,
        leading,
        lambda: NodeLinks(side.calling, lambda node: address_in(side.image, node)),
        monotonic,
        look,
    )
