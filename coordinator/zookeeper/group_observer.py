"""Watches the groups of the ZooKeeper era and reports what it sees as events of the core.

One task reads what has changed, one group after the other; however many watches fire meanwhile, the next read covers
them all. Nothing is read twice without a watch having fired: a claim is read once, and again when its own watch
reports that it is gone. Offsets change all the time, so they are not watched but read on request.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple, TypeAlias

import structlog

from muster.assignors.api import TopicPartition
from muster.client.members.zookeeper_assignment import GroupRegistration, resolve_topics
from muster.coordinator.core.model.events import GroupObserved, GroupUnseen, ObservedMember
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import GroupOffsets, gather_bounded
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.layout import ConsumerZnode, is_decimal, read_consumer, read_owner
from muster.coordinator.zookeeper.published_topics import TopicsWatch
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession

# One group
# ---------

log = structlog.get_logger("muster.zookeeper")

READ_ATTEMPTS = 3
"""How often one look reads because members came or went meanwhile; after that the next look tells the rest."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What all groups see: the brokers that live, and the partitions of each topic."""

    brokers: tuple[int, ...]
    topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OwnerClaim:
    """An owner znode. `made` is the transaction that made it."""

    consumer_id: str
    made: int


RegisteredMembers: TypeAlias = dict[str, ConsumerZnode]
OwnerClaims: TypeAlias = dict[TopicPartition, OwnerClaim]


class LostClaim(NamedTuple):
    """A claim of a member that is gone: the transaction that last changed its topic's claims, and the place of its own
    watch among those that went off (None: it did not)."""

    changed_at: int
    place: int | None


class GroupWatch:
    """What was last seen of one group. `changed` is called, on the loop, when it has to be looked at again."""

    def __init__(
        self, session: ZooKeeperSession, group_id: str, changed: Callable[[], None], *, was_there: bool
    ) -> None:
        self._session = session
        self._group_id = group_id
        self._changed = changed
        self._was_there = was_there
        self._members: RegisteredMembers = {}
        self._claims: OwnerClaims = {}
        self._suspect: set[str] = set()
        """Paths of claims whose watch went off: what is known of them is old."""
        self._fired: dict[str, int] = {}
        """path -> its place in the order in which watches went off, since before the last look"""
        self._member_changes = 0
        """How often somebody came or went."""
        self._breaks = 0
        """How often the connection broke, and took watches along."""
        self._relied_on_at: int | None = 0
        """`_breaks` when the look began that read `_claims`; None: nothing that is known can be relied on."""
        self._places = count()
        self._went: dict[str, float] = {}
        """Paths of claims that a watch said went since the last look, and when"""
        self._now_s = asyncio.get_running_loop().time
        self._lost: dict[str, list[LostClaim]] = {}
        """member -> the claims that it had and has no more, until it claims again"""

    async def observe_group(self, around: ClusterSnapshot) -> GroupObserved:
        """The group as it is now, with a watch on everything that was read. Raises ZooKeeper's weather."""
        old = self._fired.keys() | self._went.keys()
        members_before, claims_before, breaks = self._members, self._claims, self._breaks
        try:
            members, ids_at, claims, claimed_at = await self._read()
        except ZooKeeperError:
            # What was read is not kept, and its watches are spent: it has to be read again.
            self._relied_on_at = None
            raise
        self._members, self._claims, self._relied_on_at = members, claims, breaks
        gone = members_before.keys() - members.keys()
        self._remember_lost(claims_before, claimed_at)
        seen = GroupObserved(
            group_id=self._group_id,
            members=tuple(self._member(name, body, around) for name, body in sorted(members.items())),
            owners={tp: claim.consumer_id for tp, claim in sorted(claims.items())},
            partitions=self._partitions(around),
            brokers=around.brokers,
            renewed=frozenset(
                tp
                for tp, claim in claims.items()
                if tp in claims_before
                and claim.made != claims_before[tp].made
                and claim.consumer_id == claims_before[tp].consumer_id
            ),
            gone_for_ms={tp: self._gone_for_ms(tp) for tp in sorted(claims_before) if self._path(tp) in self._went},
            ended=frozenset(name for name in gone if self._ended(name, ids_at)),
            was_there=self._was_there,
        )
        self._was_there = False
        self._lost = {name: claims for name, claims in self._lost.items() if name in members}
        # What went off while we looked may belong to what the next look sees.
        self._went = {path: at for path, at in self._went.items() if path not in old}
        self._fired = {path: place for path, place in self._fired.items() if path not in old}
        return seen

    async def _read(self) -> tuple[RegisteredMembers, int, OwnerClaims, dict[str, int]]:
        """Members and claims that belong together, and the transactions that last changed them."""
        members = self._members
        claims = self._claims if self._relied_on_at == self._breaks else {}
        for _ in range(READ_ATTEMPTS):
            changes = self._member_changes
            members, ids_at = await self._read_members(members)
            claims, claimed_at = await self._read_claims(claims)
            # Claims that were made by those who knew of a change belong to the members after it.
            if changes == self._member_changes:
                break
        return members, ids_at, claims, claimed_at

    async def _read_members(self, known: RegisteredMembers) -> tuple[RegisteredMembers, int]:
        """The registrations, each read once, and the transaction that last changed who is there."""
        folder = layout.consumer_ids_path(self._group_id)
        found = await self._listing(folder)
        names, changed_at = found if found is not None else ([], 0)
        fresh = await gather_bounded([name for name in names if name not in known], self._read_member)
        stayed = {name: known[name] for name in names if name in known}
        return stayed | {name: body for name, body in fresh if body is not None}, changed_at

    async def _read_member(self, name: str) -> tuple[str, ConsumerZnode | None]:
        path = layout.consumer_path(self._group_id, name)
        znode = await self._session.get(path)
        if znode is None:
            return name, None  # gone meanwhile: the watch on the list says so
        try:
            return name, read_consumer(path, znode.data)
        except MalformedZnode as error:
            log.warning("a consumer's registration cannot be read; its topics are unknown", why=str(error))
            return name, ConsumerZnode()

    async def _read_claims(self, known: OwnerClaims) -> tuple[OwnerClaims, dict[str, int]]:
        """Who owns what, and for each topic the transaction that last changed it."""
        found = await self._listing(layout.owners_path(self._group_id))
        topics = await gather_bounded(found[0] if found else [], self._read_topic)
        partitions = [(topic, int(name)) for topic, names, _ in topics for name in names if is_decimal(name)]
        suspect = [tp for tp in partitions if tp not in known or self._path(tp) in self._suspect]
        fresh = dict(await gather_bounded(suspect, self._read_claim))
        claims = {tp: claim for tp in partitions if (claim := fresh.get(tp, known.get(tp))) is not None}
        # What went after its topic was listed went in a later transaction than that list tells.
        again = await gather_bounded(sorted({topic for topic, _ in fresh.keys() - claims.keys()}), self._read_topic)
        return claims, {topic: changed_at for topic, _, changed_at in (*topics, *again)}

    async def _read_topic(self, topic: str) -> tuple[str, list[str], int]:
        found = await self._listing(layout.topic_owners_path(self._group_id, topic))
        return (topic, *found) if found is not None else (topic, [], 0)

    async def _read_claim(self, tp: TopicPartition) -> tuple[TopicPartition, OwnerClaim | None]:
        path = self._path(tp)
        self._suspect.discard(path)
        znode = await self._session.get(path, self._claim_fired)
        if znode is None:
            return tp, None
        try:
            consumer_id, _ = read_owner(path, znode.data)
        except MalformedZnode as error:
            log.warning("a claim cannot be read", why=str(error))
            return tp, None
        return tp, OwnerClaim(consumer_id, znode.made)

    async def _listing(self, path: str) -> tuple[list[str], int] | None:
        """The names below, watched; None while it is not there, and its creation is watched then."""
        while True:
            found = await self._session.listing(path, self._list_fired)
            if found is not None or not await self._session.exists(path, self._list_fired):
                return found

    def _gone_for_ms(self, tp: TopicPartition) -> int:
        return int((self._now_s() - self._went[self._path(tp)]) * 1000)

    def _path(self, tp: TopicPartition) -> str:
        return layout.owner_path(self._group_id, *tp)

    def _remember_lost(self, before: Mapping[TopicPartition, OwnerClaim], claimed_at: Mapping[str, int]) -> None:
        for claim in self._claims.values():
            self._lost.pop(claim.consumer_id, None)
        for tp, claim in before.items():
            now = self._claims.get(tp)
            if now is None or now.consumer_id != claim.consumer_id:
                place = self._fired.get(self._path(tp))
                self._lost.setdefault(claim.consumer_id, []).append(LostClaim(claimed_at.get(tp[0], 0), place))

    def _ended(self, name: str, ids_at: int) -> bool:
        """Whether a member that is gone went with its claims. It may have been seen without them a moment before."""
        lost = self._lost.pop(name, [])
        return bool(lost) and not claims_released_before_exit(
            lost, ids_at, self._fired.get(layout.consumer_ids_path(self._group_id))
        )

    def _member(self, name: str, body: ConsumerZnode, around: ClusterSnapshot) -> ObservedMember:
        try:
            topics = resolve_topics(name, GroupRegistration(body.subscription, body.pattern), around.topics, True)
        except ValueError as error:
            log.warning("a consumer's pattern cannot be read; its topics are unknown", why=str(error))
            topics = {}
        return ObservedMember(name, tuple(sorted(topics)), body.pattern, consumer_host(self._group_id, name))

    def _partitions(self, around: ClusterSnapshot) -> dict[str, int]:
        read = {topic for name, body in self._members.items() for topic in self._member(name, body, around).topics}
        return {topic: around.topics[topic] for topic in sorted(read) if topic in around.topics}

    # kazoo tells watches apart by what they call, so these are methods.

    def _list_fired(self, fired: WatchEvent) -> None:
        self._note(fired)

    def _claim_fired(self, fired: WatchEvent) -> None:
        self._suspect.add(fired.path)
        if fired.kind == "deleted":
            self._went.setdefault(fired.path, self._now_s())
        self._note(fired)

    def _note(self, fired: WatchEvent) -> None:
        if fired.kind == "session":
            self._breaks += 1
        if fired.path == layout.consumer_ids_path(self._group_id):
            self._member_changes += 1
        self._fired.setdefault(fired.path, next(self._places))
        self._changed()


def claims_released_before_exit(held: Sequence[LostClaim], left_at: int, left_place: int | None) -> bool:
    """Whether a member that is gone had given its claims up before it went.

    When its session ends, all its znodes go in one transaction, `left_at`. When others have changed the topic's claims
    in the meantime, the order in which the watches went off has to tell: what was given up went before the
    registration did.

    >>> claims_released_before_exit([LostClaim(7, 0)], 9, 1), claims_released_before_exit([LostClaim(9, 0)], 9, 1)
    (True, False)
    >>> claims_released_before_exit([LostClaim(12, 0)], 9, 1), claims_released_before_exit([LostClaim(12, 2)], 9, 1)
    (True, False)
    """
    if any(claim.changed_at == left_at for claim in held):
        return False
    return all(claim.changed_at < left_at or fired_before(claim.place, left_place) for claim in held)


def fired_before(place: int | None, other: int | None) -> bool:
    """A watch that has not gone off yet goes off last."""
    return place is not None and (other is None or place < other)


def consumer_host(group_id: str, consumer_id: str) -> str:
    """The host that a consumer's id names, as `[group]_[host]-[millis]-[uuid]` or `[host]:[uuid]`.

    >>> consumer_host("g", "g_box-7-1700000000000-c0ffee00"), consumer_host("g", "box:1234"), consumer_host("g",
    ... "g_mine")
    ('box-7', 'box', '')
    """
    host, _, rest = consumer_id.removeprefix(f"{group_id}_").rpartition("-")[0].rpartition("-")
    if host and is_decimal(rest):
        return host
    host, colon, _ = consumer_id.rpartition(":")
    return host if colon else ""


# All groups
# ----------

MAX_GROUPS = 1_000
"""Groups that are watched; a node says so when there are more."""
RETRY_S = 0.5

ReportGroup: TypeAlias = Callable[[GroupObserved | GroupUnseen], None]


class GroupHasMembers(ZooKeeperError):
    """The group has members, so what it keeps in ZooKeeper is not to be changed from outside."""


class GroupObserver:
    """All groups below /consumers. `tell` gets an event for every change, on the loop."""

    def __init__(self, session: ZooKeeperSession, tell: ReportGroup) -> None:
        self._session = session
        self._tell = tell
        self._topics = TopicsWatch(session, self._around_changed)
        self._watches: dict[str, GroupWatch] = {}
        self._seen: dict[str, GroupObserved] = {}
        self._around = ClusterSnapshot((), {})
        self._stale: dict[str, None] = {}
        """Groups to look at, in their order: one that changes all the time takes its turn like the others."""
        self._central: set[str] = set()
        self._stale_around = True
        self._look = asyncio.Event()
        self._first = True
        self._left_out = 0
        self._running = RestartedTask("groups in ZooKeeper", self._run)

    def start(self) -> None:
        self._session.on_state(self._session_changed)
        self._running.start()

    async def stop(self) -> None:
        await self._running.stop()

    @property
    def in_touch(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    def knows(self, group_id: str) -> bool:
        return group_id in self._watches

    def tell_again(self, wanted: Callable[[str], bool]) -> None:
        """Say once more how these groups stand: whoever was told has forgotten."""
        for group_id, seen in self._seen.items():
            if wanted(group_id):
                self._tell(replace(seen, renewed=frozenset(), gone_for_ms={}, ended=frozenset(), was_there=True))

    async def positions(self, group_id: str) -> dict[TopicPartition, int]:
        """What the group has committed in ZooKeeper. Raises ZooKeeperError."""

        def malformed(why: str) -> None:
            log.warning("a position cannot be read and counts as none", group=group_id, why=why)

        return await GroupOffsets(self._session, group_id).fetch_all(malformed)

    async def write_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members. Raises GroupHasMembers, ZooKeeperError."""
        await self._must_be_idle(group_id)
        await self.commit_positions(group_id, positions)

    async def commit_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions, whoever is in the group. Raises ZooKeeperError."""
        await GroupOffsets(self._session, group_id).write(positions, registered_as=None)

    async def delete_positions(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Forget positions of a group without members. Raises GroupHasMembers, ZooKeeperError."""
        await self._must_be_idle(group_id)
        for topic, partition in partitions:
            await self._session.delete(layout.offset_path(group_id, topic, partition))

    async def delete(self, group_id: str) -> None:
        """Delete all that ZooKeeper has of a group without members. Raises GroupHasMembers, ZooKeeperError."""
        await self._must_be_idle(group_id)
        await self._session.delete_all(layout.group_path(group_id))
        self._forget(group_id)

    async def _must_be_idle(self, group_id: str) -> None:
        if members := await self._session.children(layout.consumer_ids_path(group_id)):
            raise GroupHasMembers(f"group {group_id!r} has {len(members)} members in ZooKeeper; stop them first")

    async def _run(self) -> None:
        self._look_anew()
        while True:
            await self._look.wait()
            await self._session.connected()
            self._look.clear()
            try:
                await self._look_around()
                await self._look_at_groups()
            except ZooKeeperError as error:
                log.debug("groups in ZooKeeper cannot be looked at now", why=str(error))
                self._look.set()
                await asyncio.sleep(RETRY_S)

    async def _look_around(self) -> None:
        """Brokers, topics, and which groups there are."""
        if not self._stale_around:
            return
        self._stale_around = False
        try:
            brokers = await self._session.children(layout.BROKER_IDS, self._around_fired) or ()
            around = ClusterSnapshot(
                tuple(sorted(int(each) for each in brokers if each.isdigit())), await self._counts()
            )
            groups = await self._consumers_own(await self._session.children(layout.CONSUMERS, self._around_fired) or [])
        except ZooKeeperError:
            self._stale_around = True
            raise
        if around != self._around:
            self._around = around
            self._stale.update(dict.fromkeys(self._watches))
        self._follow(groups)

    async def _consumers_own(self, groups: list[str]) -> list[str]:
        """Without the central groups, which a coordinator shows there and speaks for itself."""
        for group_id in set(groups) - self._watches.keys() - self._central:
            znode = await self._session.get(layout.group_path(group_id))
            if znode is not None and znode.data == layout.CENTRAL_GROUP:
                self._central.add(group_id)
        self._central &= set(groups)
        return [group_id for group_id in groups if group_id not in self._central]

    async def _counts(self) -> dict[str, int]:
        return {name: len(assignment) for name, assignment in (await self._topics.read()).items()}

    def _follow(self, groups: list[str]) -> None:
        """Watch those that are new, up to the limit, and let go of those that are gone."""
        for group_id in self._watches.keys() - set(groups):
            self._forget(group_id)
        fresh = [group_id for group_id in groups if group_id not in self._watches]
        room = MAX_GROUPS - len(self._watches)
        if len(fresh) > room and self._left_out != len(fresh) - room:
            self._left_out = len(fresh) - room
            log.warning("ZooKeeper has more groups than are watched", watched=MAX_GROUPS, left_out=self._left_out)
        for group_id in fresh[:room]:
            self._watches[group_id] = GroupWatch(
                self._session, group_id, self._marking(group_id), was_there=self._first
            )
            self._stale[group_id] = None
        self._first = False

    def _forget(self, group_id: str) -> None:
        self._watches.pop(group_id, None)
        self._stale.pop(group_id, None)
        if self._seen.pop(group_id, None) is not None:
            self._tell(GroupUnseen(group_id))

    async def _look_at_groups(self) -> None:
        while self._stale:
            await self._look_around()  # what members did since may rest on it
            group_id = next(iter(self._stale), None)
            if group_id is None:
                return  # all of them have gone
            del self._stale[group_id]
            watch = self._watches.get(group_id)
            if watch is None:
                continue
            try:
                seen = await watch.observe_group(self._around)
            except ZooKeeperError:
                self._stale[group_id] = None
                raise
            if self._watches.get(group_id) is not watch:
                continue  # it was deleted while we looked
            if seen.renewed or seen != self._seen.get(group_id):
                self._tell(seen)
            self._seen[group_id] = seen

    def _marking(self, group_id: str) -> Callable[[], None]:
        def mark() -> None:
            self._stale[group_id] = None
            self._look.set()

        return mark

    def _around_fired(self, fired: WatchEvent) -> None:
        self._around_changed()

    def _around_changed(self) -> None:
        self._stale_around = True
        self._look.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._look_anew()

    def _look_anew(self) -> None:
        """At everything; first at those whose turn it was."""
        self._stale_around = True
        self._stale.update(dict.fromkeys(self._watches))
        self._look.set()
