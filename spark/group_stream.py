"""A stream whose driver is a member of a group: it reads the partitions that the group assigns, and commits there.

Each call of `pending` is the member's poll. Spark asks for the next batch only when the previous one is done: its
offsets are committed then, and only after that are revoked partitions given up, so the next owner starts exactly
where this one ended. If a batch takes longer than max.poll.interval.ms, or a driver dies, the next owner reads the
last batch again.

Options that say where to begin apply to the partitions that existed when the group began; later partitions are read
from their beginning. Drivers that begin a group together commit at different times, so a missing offset proves
nothing; the note `partitions=3` on every offset of the topic does.

Spark ends the process of a source with SIGTERM, twice, and Python would die without the `finally` in which Spark
calls `stop()`. A handler ends the process in good order, so that the membership ends at once and not with its
session.
"""

import logging
import re
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

from muster.client.aio import AsyncAdmin
from muster.client.aio.worker import WorkerCore
from muster.client.config import WorkerConfig
from muster.client.described import GroupDescription
from muster.client.errors import CommitFailed
from muster.client.membership.ports import Callback
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.spark.lookup import LogBounds, LogView, LogWatch, LookupKey, NodeLookup
from muster.spark.partition_stream import is_recreated
from muster.spark.planning import OffsetRange
from muster.spark.read_options import DataLoss, NoShare, ReadOptions
from muster.spark.stream_offsets import PartitionProgress, StreamOffset, find_positions_ahead

# The partition counts with which a group began
# ---------------------------------------------

NOTE = re.compile(r"partitions=([0-9]{1,9})")


def write_note(count: int | None) -> str:
    """
    >>> write_note(3), write_note(None)
    ('partitions=3', '')
    """
    return "" if count is None else f"partitions={count}"


def read_notes(notes: Iterable[tuple[tuple[str, int], str]]) -> dict[str, int]:
    """How many partitions each topic had when the group began, where anybody noted it; the fewest of several.

    >>> read_notes([(("t", 0), "partitions=4"), (("t", 1), "partitions=3"), (("u", 0), "")])
    {'t': 3}
    """
    counts: dict[str, int] = {}
    for (topic, _), note in notes:
        if found := NOTE.fullmatch(note):
            counts[topic] = min(int(found[1]), counts.get(topic, int(found[1])))
    return counts


def find_initial_counts(
    notes: Mapping[str, int], committed: Iterable[tuple[str, int]], present: Mapping[str, int]
) -> dict[str, int]:
    """How many partitions each topic had when the group began.

    Without a note a topic of which something is committed began with nothing that is not: somebody else read it, who
    settles all partitions at once. A topic of which nothing is committed begins now.

    >>> find_initial_counts({"t": 3}, [("t", 0), ("u", 0)], {"t": 4, "u": 2, "v": 5})
    {'t': 3, 'u': 0, 'v': 5}
    """
    read = {topic for topic, _ in committed}
    return {topic: notes.get(topic, 0 if topic in read else count) for topic, count in sorted(present.items())}


# SIGTERM
# -------


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process through its `finally` clauses, unless the application has a handler of its own."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, exit_in_order)


def exit_in_order(number: int, frame: FrameType | None) -> None:
    # The second signal would interrupt what the first one began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


# Waiting for the first assignment
# --------------------------------

log = logging.getLogger("muster.spark")

SHOWN_MEMBERS = 5
PATIENT_TURNS = 2
"""How many times in a row a group may give nothing without waiting for anybody: it may be between two steps."""


class SharePatience:
    """Asked after every default.api.timeout.ms without a share; NoShare when there is nothing to wait for."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._idle_turns = 0
        self._told: tuple[str, ...] = ()

    async def turn(self) -> None:
        """Whom the group waits for, in the log. Raises NoShare, and what a node that is away or refuses raises."""
        assert self._config.group_id is not None, "only members wait for a share"
        names = {"bootstrap.servers": self._config.bootstrap_servers}
        async with AsyncAdmin(names, default_api_timeout_ms=self._config.default_api_timeout_ms) as admin:
            group = await admin.describe_group(self._config.group_id)
        if group.waiting_until_ms:
            self._idle_turns = 0
            self._log_waiting(group)
            return
        self._idle_turns += 1
        if self._idle_turns >= PATIENT_TURNS:
            waited_ms = self._idle_turns * self._config.default_api_timeout_ms
            raise NoShare(
                group.group_id, waited_ms, group.state, describe_members(group, [m.member_id for m in group.members])
            )

    def _log_waiting(self, group: GroupDescription) -> None:
        if group.waiting_for != self._told:
            self._told = group.waiting_for
            log.warning(
                "group %r gives no share yet: it waits for %s to finish a batch and poll, at most until that member's "
                "max.poll.interval.ms or its session is over",
                group.group_id,
                describe_members(group, group.waiting_for),
            )


def describe_members(group: GroupDescription, members: Sequence[str]) -> str:
    """Members by id and address."""
    hosts = {member.member_id: member.client_host for member in group.members}
    names = [f"{member} at {hosts.get(member) or 'an unknown address'}" for member in list(members)[:SHOWN_MEMBERS]]
    more = len(members) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "") or "nobody in particular"


# The member
# ----------

FIRST_SHARE_S = 1.0
"""With KIP-848 a share may be empty without a word; then this is how long a batch waits for one."""

SETTLING_TURNS = 5
"""How often a batch waits for another plan, when the group goes on to the next one each time."""

CLOSE_PATIENCE_MS = 5_000
"""How long the last commit may take; a node that is away must not keep a stopped query's process."""


class GroupFollower:
    """The membership of one query. It begins with the first question for a batch, not when the query is made."""

    def __init__(self, options: ReadOptions, lookup: NodeLookup, watch: LogWatch) -> None:
        assert options.group_id is not None, "only a query with a group.id is grouped"
        self._options = options
        self._group_id = options.group_id
        self._lookup = lookup
        self._watch = watch
        self._servers = lookup.transport.config.bootstrap_servers
        self._working: WorkerCore | None = None
        self._names: tuple[str, ...] = ()
        self._positions: dict[LookupKey, int] = {}
        """Where to read on, for each partition that is ours."""
        self._done = StreamOffset()
        """The end of the last batch that is known to be done."""
        self._told: dict[LookupKey, int] = {}
        """What this member has committed."""
        self._left: dict[LookupKey, int] = {}
        """Where this driver had got to in partitions that were taken from it."""
        self._between_shares = True
        """Whether the group has taken everything back and not said yet what it gives."""
        self._begun: dict[str, int] | None = None
        """How many partitions of each topic options speak of. Others came later: all that is in them is new."""

    def initial(self) -> StreamOffset:
        """Nothing yet: which partitions there will be is the group's decision."""
        # Without commits the checkpoint alone can know where `latest` was.
        forgets = not self._options.commit_offsets and self._options.begins_with_the_moment
        return StreamOffset({}, {}, self._servers, self._group_id, initial=forgets)

    def pending(self, start: StreamOffset, view: LogView) -> list[OffsetRange]:
        """For each partition that the group gave us, what is there to read."""
        restarted = self._working is None and bool(start.partitions)
        self._done = start
        if self._begun is None:
            self._begun = self._begun_with(start, view)
        working = self._member(view)
        if working is None:
            return []
        if self._between_shares:
            self._wait_for_share(working)
        if restarted:
            self._catch_up(working, start)
        self._follow(working)
        self._commit(working, find_own_positions(working, start))
        for _ in range(SETTLING_TURNS):
            if self._between_shares:
                self._wait_for_share(working)
            if self._settle(working, view):
                break
        return self._ranges(start, view)

    def offset(self, ranges: list[OffsetRange], view: LogView) -> StreamOffset:
        working = self._working
        assert working is not None, "a batch has partitions, so there is a membership"
        identity = working.identity()
        partitions = {
            wanted.tp: PartitionProgress(wanted.start, wanted.end, working.owned[TopicPartition(*wanted.tp)])
            for wanted in ranges
        }
        ids = view.topic_ids({topic for topic, _ in partitions})
        return StreamOffset(partitions, ids, self._servers, self._group_id, identity.member_id, identity.generation)

    def finished(self, end: StreamOffset) -> None:
        self._done = end
        if self._working is not None:
            self._commit(self._working, find_own_positions(self._working, end))

    def close(self) -> None:
        """Commit what is done, and leave."""
        working, self._working = self._working, None
        if working is None:
            return
        run = self._lookup.run
        try:
            self._commit(working, find_own_positions(working, self._done), CLOSE_PATIENCE_MS)
            run(working.begin_close(True))
            while (callback := run(working.closing_callback())) is not None:
                run(finish_callback(working, callback))
        finally:
            run(working.finish_close())

    def _ranges(self, start: StreamOffset, view: LogView) -> list[OffsetRange]:
        found = []
        for tp, position in sorted(self._positions.items()):
            known = view.bounds.get(tp)
            if known is None:
                if self._options.fail_on_data_loss:
                    raise DataLoss(f"{tp[0]}-{tp[1]} was read up to offset {position} and does not exist any more")
                continue
            if tp in start.partitions and is_recreated(start, view, tp[0], self._options, self._lookup):
                position = known.start
            position = self._lookup.held(tp, position, known, "the next offset to read")
            found.append(OffsetRange(*tp, position, max(position, known.end)))
        return found

    # Membership

    def _member(self, view: LogView) -> WorkerCore | None:
        """Take part, in the topics that there are now; None while there is none to share."""
        if self._working is None:
            self._lookup.partitions_of(view.topics)
        names = self._options.topics or tuple(sorted(view.topics))
        if not names:
            return self._working
        if self._working is None:
            working = WorkerCore(self._options.member_config())
            self._lookup.run(working.join(names, ()))
            self._working = working
            leave_on_sigterm()
        elif names != self._names:
            self._lookup.run(self._working.join(names, ()))
        self._names = names
        return self._working

    def _wait_for_share(self, working: WorkerCore) -> None:
        """Until the group has decided: Trigger.AvailableNow would take an empty share for the end.

        Other members may be busy with a batch; the group knows whom it waits for, and for how long at most.
        """
        run = self._lookup.run
        patience = SharePatience(working.config)
        while True:
            silent = is_silent(working)
            callback = run(working.next_callback(max_silence_s(working)))
            if callback is not None:
                self._follow_callback(working, callback)
            if silent or (callback is not None and callback.kind == "assigned"):
                self._between_shares = False
                return
            if callback is None:
                run(patience.turn())

    def _follow(self, working: WorkerCore) -> None:
        """Whatever the group decided meanwhile, in order."""
        while (callback := self._lookup.run(working.next_callback(0))) is not None:
            self._follow_callback(working, callback)

    def _hear(self, working: WorkerCore) -> None:
        """The group's next word, waited for, and whatever comes with it."""
        callback = self._lookup.run(working.next_callback(max_silence_s(working)))
        if callback is not None:
            self._follow_callback(working, callback)
            self._follow(working)

    def _follow_callback(self, working: WorkerCore, callback: Callback) -> None:
        if callback.kind == "revoked":
            # The next owner begins where we ended, so this has to be there before it looks.
            self._commit(working, find_own_positions(working, self._done))
        if callback.kind != "assigned":
            for topic, partition in callback.partitions:
                self._let_go((topic, partition))
        self._lookup.run(finish_callback(working, callback))
        self._between_shares = callback.kind != "assigned" and not working.owned
        log.info("group %r: %s %s", self._group_id, callback.kind, format_partitions(callback.partitions))

    def _let_go(self, tp: LookupKey) -> None:
        self._told.pop(tp, None)
        position = self._positions.pop(tp, None)
        if position is not None:
            # The group may take it back between a batch that is done and the question for the next one.
            done = self._done.partitions.get(tp)
            self._left[tp] = position if done is None else max(position, done.end)

    def _settle(self, working: WorkerCore, view: LogView) -> bool:
        """Read on where the last batch ended; in partitions that are new to us, where the group stands.

        False when the group went on to another plan meanwhile: some of them are nobody's now.
        """
        for (topic, partition), generation in working.owned.items():
            progress = self._done.partitions.get((topic, partition))
            if progress is not None and progress.generation == generation:
                self._positions[topic, partition] = progress.end
        owned = {(topic, partition) for topic, partition in working.owned}
        new = {tp: view.bounds[tp] for tp in sorted(owned - self._positions.keys()) if tp in view.bounds}
        if not new:
            return True
        positions = self._lookup.run(self._beginning(new, view))
        # Where the group begins is a fact before anybody reads on from there: `latest` means another offset every time.
        if not self._commit(working, positions):
            self._hear(working)
            return False
        self._positions.update(positions)
        return True

    def _begun_with(self, start: StreamOffset, view: LogView) -> dict[str, int]:
        """What there was of each topic when the group began, or begins now."""
        present = {name: topic.partitions for name, topic in view.topics.items()}
        refuses = self._options.starting.kind == "committed" and self._options.starting_offsets_fallback == "error"
        if refuses or not view.bounds:
            return present
        entries = self._lookup.run(self._lookup.committed_entries(view.bounds))
        notes = read_notes((tp, entry.metadata) for tp, entry in entries.items())
        return find_initial_counts(notes, {*entries, *start.partitions}, present)

    async def _beginning(self, new: Mapping[LookupKey, LogBounds], view: LogView) -> dict[LookupKey, int]:
        """Where the group stands. Only where it stands nowhere yet do options count, or a hand-over would undo work."""
        lookup, starting = self._lookup, self._options.starting
        topics = {topic for topic, _ in new}
        entries = await lookup.committed_entries([tp for tp in view.bounds if tp[0] in topics])
        begun = self._counts_from_notes(read_notes((tp, entry.metadata) for tp, entry in entries.items()))
        what = f"the offset committed by {self._group_id!r}"
        known = {tp: lookup.held(tp, entries[tp].offset, new[tp], what) for tp in new if tp in entries}
        known |= self._ahead_of_group(known, new)
        for tp, bounds in new.items():
            if tp not in known and tp[1] >= begun.get(tp[0], 0) and not starting.names(tp):
                known[tp] = bounds.start
        rest = {tp: bounds for tp, bounds in new.items() if tp not in known}
        if not rest:
            return known
        return known | await lookup.positions(starting.among(rest), rest)

    def _counts_from_notes(self, notes: Mapping[str, int]) -> dict[str, int]:
        """Who begins a group together with us may have seen fewer partitions: then the others came later for all."""
        begun = self._begun or {}
        for topic in begun.keys() & notes.keys():
            begun[topic] = min(begun[topic], notes[topic])
        return begun

    def _ahead_of_group(
        self, committed: Mapping[LookupKey, int], new: Mapping[LookupKey, LogBounds]
    ) -> dict[LookupKey, int]:
        """How far this driver had got, where that is further than what is committed: commits are left to others, or one
        was refused because its membership had ended during a batch."""
        done = {tp: progress.end for tp, progress in self._done.partitions.items()} | self._left
        return {
            tp: self._lookup.held(tp, done[tp], bounds, "the next offset to read")
            for tp, bounds in new.items()
            if done.get(tp, -1) > committed.get(tp, -1)
        }

    # Commits

    def _catch_up(self, working: WorkerCore, start: StreamOffset) -> None:
        """After a restart: Spark never tells that the last batch was done, but it would not go on behind it if not."""
        committed = self._lookup.run(self._lookup.committed(start.partitions))
        self._commit(working, find_positions_ahead(start, committed))

    def _commit(self, working: WorkerCore, positions: dict[LookupKey, int], patience_ms: int | None = None) -> bool:
        """False when the group refused: it went on without this member."""
        fresh = {tp: offset for tp, offset in positions.items() if self._told.get(tp) != offset}
        if not fresh or not self._options.commit_offsets:
            return True
        begun = self._begun or {}
        offsets = {
            TopicPartition(*tp): OffsetAndMetadata(offset, write_note(begun.get(tp[0]) or None))
            for tp, offset in fresh.items()
        }
        if not self._lookup.run(commit_as_member(working, offsets, patience_ms)):
            return False
        self._told.update(fresh)
        return True


def find_own_positions(working: WorkerCore, offset: StreamOffset) -> dict[LookupKey, int]:
    """Where the batch that ends at `offset` leaves the partitions that were ours then and still are."""
    return {
        tp: progress.end
        for tp, progress in sorted(offset.partitions.items())
        if working.owned.get(TopicPartition(*tp)) == progress.generation
    }


def is_silent(working: WorkerCore) -> bool:
    """Whether a group may go on to another plan and say nothing, for nothing changes for this member."""
    return working.config.group_protocol == "consumer" and working.identity().generation >= 0


def max_silence_s(working: WorkerCore) -> float:
    return FIRST_SHARE_S if is_silent(working) else working.config.default_api_timeout_ms / 1000


async def finish_callback(working: WorkerCore, callback: Callback) -> None:
    """The member machine is stepped on its own loop."""
    working.done(callback)


async def commit_as_member(
    working: WorkerCore, offsets: Mapping[TopicPartition, OffsetAndMetadata], patience_ms: int | None
) -> bool:
    """False when the group went on without this member: then the next owner reads from what is committed."""
    identity = working.identity()
    try:
        await working.calls.commit(offsets, identity, patience_ms)
    except CommitFailed as error:
        log.warning("offsets of group %r are not committed: %s", working.group_id, error)
        if working.driver is not None:
            working.driver.refused(error, identity.generation)
        return False
    return True


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "nothing"
