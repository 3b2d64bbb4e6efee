"""The part of a cluster's topics that is held on this node: taken in, let go, and what is written down for it.

A node on its own calls nothing of this. Which partitions are held is the cluster's to say; the catalog remembers it
(`Topic.held`), and each start opens them as followers. By the thread that changes topics and appends.
"""

import errno
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.storage.errors import InvalidPartitions, StorageError, TopicAlreadyExists
from muster.storage.files import read_trusted_offsets
from muster.storage.logs import replica
from muster.storage.logs.loader import LogCheckpoint, create_log, open_log, read_topic_id
from muster.storage.logs.log import Log
from muster.storage.logs.retention import restart_log, truncate_log, truncation_point
from muster.storage.settings_text import os_error_remedy
from muster.storage.topics.catalog import CatalogEntry, colliding_name, format_id
from muster.storage.topics.data_dir import HIGH_WATERMARKS, LOG_STARTS, PRIVATE_POINTS, RECOVERY_POINTS, write_identity
from muster.storage.topics.log_directories import (
    FEW_PARTITIONS,
    STRAY,
    find_stray,
    partition_directory,
    set_aside_directory,
)
from muster.storage.topics.topics import TopicStore
from muster.storage.types import Topic, TopicPartition

logger = logging.getLogger("muster.storage")

PROBE = "room-probe-of-copies"

Failures = dict[TopicPartition, StorageError]


class HostedTopics(TopicStore):
    """Topics of which some partitions are held here."""

    # -- which partitions are held ------------------------------------------------------------------------

    def host(self, topics: Sequence[Topic]) -> Failures:
        """Hold the partitions in each topic's `held`, besides those that are held; which could not, and why.

        One that is new begins empty; one that was kept as a stray of this topic goes on with what it has. A topic that
        was this node's alone is the cluster's from now on. What is held survives a crash once this returns. Logs that
        are new here follow, and nothing in them counts as committed. TopicAlreadyExists, with nothing done, where
        another topic of that name is held.
        """
        with self._changing:
            for topic in topics:
                self._finish_deletion_of(topic.name)
                self._check_same(topic)
            room = self.settings.max_partitions - len(self._logs) - len(self._broken)
            names = self._entries()
            many = sum(len(topic.held or ()) for topic in topics) >= FEW_PARTITIONS
            failures: Failures = {}
            logs: list[Log] = []
            known: dict[str, Topic] = {}
            for topic in topics:
                before = self._topics.get(topic.name)
                have = set(before.here) if before else set()
                for number in sorted(set(topic.held or ()) - have):
                    tp = topic.name, number
                    try:
                        if len(logs) >= room:
                            raise self._no_room(tp)
                        logs.append(self._taken_in(topic, number, names, sync=not many))
                        have.add(number)
                    except StorageError as error:
                        failures[tp] = error
                    except OSError as error:
                        failures[tp] = self._not_taken_in(tp, error)
                held = tuple(sorted(have))
                known[topic.name] = replace(before or topic, partitions=topic.partitions, held=held)
            self._write_down_held(known, logs, flushed=not many)
            return failures

    def _entries(self) -> list[str]:
        try:
            return self._files.names(self.data_dir)
        except OSError as error:
            raise StorageError(
                f"Could not look into {self.data_dir}: {error.strerror or error}. What to do: "
                f"{os_error_remedy(error)}, then "
                "try again."
            ) from error

    def _check_same(self, topic: Topic) -> None:
        entry = self._catalog.get(topic.name)
        if entry is not None and entry.id != format_id(topic.id):
            raise TopicAlreadyExists(
                f"Topic '{topic.name}' is to be held here with the id {format_id(topic.id)}; the one that is held has "
                f"{entry.id}. Let go of that one first."
            )

    def _no_room(self, tp: TopicPartition) -> StorageError:
        return InvalidPartitions(
            f"Partition {tp[0]}-{tp[1]} exceeds the node's limit of {self.settings.max_partitions} (max.partitions). "
            "Raise it, or move partitions to other nodes."
        )

    def _not_taken_in(self, tp: TopicPartition, error: OSError) -> StorageError:
        return StorageError(
            f"Could not make {partition_directory(self.data_dir, tp)}: {error.strerror or error}. What to "
            f"do: {os_error_remedy(error)}, then try again."
        )

    def _taken_in(self, topic: Topic, number: int, names: Sequence[str], *, sync: bool) -> Log:
        """The log of a partition that is not held yet."""
        tp = topic.name, number
        files, directory, topic_id = self._files, partition_directory(self.data_dir, tp), format_id(topic.id)
        settings = self.settings.for_topic(topic.configs)
        if files.is_dir(directory) and read_topic_id(files, directory) != topic_id:
            set_aside_directory(files, self.data_dir, tp)
        stray = find_stray(names, number, topic_id)
        if stray is not None and not files.is_dir(directory):
            files.rename(f"{self.data_dir}/{stray}", directory)
            logger.warning("%s/%s is held again: it goes on as %s.", self.data_dir, stray, directory)
        if files.is_dir(directory):
            checkpoint = LogCheckpoint(clean=False)
            log = open_log(files, directory, tp, settings, self._opened, checkpoint, topic_id=topic_id, told=True)
        else:
            now_ms = self._clock_ms()
            log = create_log(
                files, directory, tp, settings, self._opened, now_ms=now_ms, topic_id=topic_id, sync=sync
            )  # fmt: skip
        log.follow(0)
        replica.start_following(log)
        return log

    def _write_down_held(self, known: Mapping[str, Topic], logs: Sequence[Log], *, flushed: bool) -> None:
        try:
            if not flushed:
                self._files.sync_all(self.data_dir)
            self._files.sync_dir(self.data_dir)
            self._save({**self._catalog, **{name: self._entry(topic) for name, topic in known.items()}})
        except OSError as error:
            for log in logs:
                log.retire()
            raise StorageError(
                f"Which partitions are held could not be written to {self.data_dir}: {error.strerror or error}. What "
                f"to do: {os_error_remedy(error)}, then try again."
            ) from error
        alone = {name for name in known if name in self._topics and self._topics[name].held is None}
        for log in self.logs():
            if log.partition[0] in alone:
                log.follow(log.high_watermark)
                replica.start_following(log)
        self._adopt(logs)
        self._alike.update({colliding_name(name): name for name in known})
        self._know({**self._topics, **known})
        self._tell_change(len(logs))

    def _entry(self, topic: Topic) -> CatalogEntry:
        before = self._catalog.get(topic.name)
        return CatalogEntry.of(topic).model_copy(update={"leaving": before.leaving if before else None})

    def drop(self, name: str, numbers: Sequence[int]) -> None:
        """Remove partitions from this node, with their records, for good; the topic with the last of them.

        For those only of which the cluster has said that they are not this node's any more. Nobody sees them once this
        returns; their files wait for `clear_away`.
        """
        self._leave(name, numbers, removing=True)

    def set_aside(self, name: str, numbers: Sequence[int]) -> None:
        """Hold partitions no longer that the cluster knows nothing of; their files are kept as strays, and named."""
        going = [tp for tp in ((name, number) for number in numbers) if tp in self._logs or tp in self._private_logs]
        for tp in going:
            log = self._logs.get(tp) or self._private_logs[tp]
            try:
                log.close()
            except StorageError as error:
                logger.error("%s", error)
        self._leave(name, numbers, removing=False)
        try:
            for number in numbers:
                if self._files.is_dir(partition_directory(self.data_dir, (name, number))):
                    set_aside_directory(self._files, self.data_dir, (name, number))
        except OSError as error:
            raise StorageError(
                f"Partitions of {name} that are held no longer keep their directories: {error.strerror or error}. "
                "Nothing of them is removed."
            ) from error

    def _leave(self, name: str, numbers: Sequence[int], *, removing: bool) -> None:
        with self._changing:
            topic = self._topics[name]
            going = sorted(set(numbers) & set(topic.here))
            left = replace(topic, held=tuple(number for number in topic.here if number not in going))
            entry = self._entry(left)
            if removing:
                entry = entry.model_copy(update={"leaving": (*(entry.leaving or ()), *going)})
            catalog = {**self._catalog, name: entry}
            if not left.held and not entry.leaving:
                del catalog[name]
            try:
                self._save(catalog)
            except OSError as error:
                raise StorageError(
                    f"That {name} leaves this node could not be written down: {error.strerror or error}. What to do: "
                    f"{os_error_remedy(error)}, then try again."
                ) from error
            others = {each: other for each, other in self._topics.items() if each != name}
            self._know({**others, name: left} if left.held else others)
            if not left.held:
                self._alike.pop(colliding_name(name), None)
            self._part_with([(name, number) for number in going])

    def strays(self) -> list[str]:
        """The names of the directories that are kept and are in no use."""
        return [name for name in self._files.names(self.data_dir) if name.endswith(STRAY)]

    # -- a log that failed --------------------------------------------------------------------------------

    def reopen(self, topic: str, partition: int) -> None:
        """Open a log anew that has failed, or could not be opened at the start, and follow with it; a sound one is left
        as it is. Raises StorageError while it cannot be used.

        What it did not flush is given up where its topic flushes every record: a system that failed to flush may show
        records that are not on the disk.
        """
        tp = topic, partition
        if self.is_gone(*tp):
            raise self._broken[tp]
        with self._changing:
            failed = self._logs.get(tp) or self._private_logs.get(tp)
            if failed is not None and failed.failure is None:
                return
            if failed is not None and failed.recovered.damage:
                raise failed.recovered.damage  # It would be cut off now, as if nobody had been promised it.
            log = self._opened_anew(tp, failed)
            if failed is not None:
                with failed.reshaping:
                    failed.retire()
            self._broken.pop(tp, None)
            self.troubles.forget(tp)
            self._adopt([log])
        if failed is not None and log.settings.flush_messages == 1:
            self.truncate(topic, partition, max(failed.durable_offset, log.start_offset))

    def is_gone(self, topic: str, partition: int) -> bool:
        """Whether a partition that is held, and could not be opened, has no directory: nothing of it can be lost.
        Raises StorageError where nobody can tell: one that cannot be looked into may have everything."""
        tp = topic, partition
        if tp not in self._broken:
            return False
        directory = partition_directory(self.data_dir, tp)
        try:
            self._files.names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            raise StorageError(
                f"Whether anything is left in {directory} cannot be told: {error.strerror or error}. "
                f"What to do: {os_error_remedy(error)}; until then it is taken for there."
            ) from error
        return False

    def no_room(self, wanted: int) -> str:
        """Why so many bytes more find no room on the disk; "" while they do, or where that cannot be told. Blocks for
        about a millisecond."""
        path = f"{self.data_dir}/{PROBE}"
        try:
            file = self._files.open(path, create=True)
            try:
                file.write([bytes(wanted)], wanted, 0)
            finally:
                file.close()
                self._files.remove(path)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return ""
            return f"No room where {self.data_dir} lies: {error.strerror}. Free some space: this copy goes on then."
        return ""

    def _opened_anew(self, tp: TopicPartition, failed: Log | None) -> Log:
        facts = self._topics[tp[0]]
        ids = {facts.name: format_id(facts.id)}

        def known(name: str) -> int:
            return read_trusted_offsets(self._files, f"{self.data_dir}/{name}", ids).get(tp, 0)

        try:
            high_watermark = known(HIGH_WATERMARKS) if failed is None else failed.high_watermark
            where, settings = partition_directory(self.data_dir, tp), self.settings.for_topic(facts.configs)
            checkpoint = LogCheckpoint(
                clean=False,
                recovery_point=failed.durable_offset if failed else max(map(known, (RECOVERY_POINTS, PRIVATE_POINTS))),
                start_offset=known(LOG_STARTS) if failed is None else failed.start_offset,
                high_watermark=high_watermark,
            )
            log = open_log(
                self._files, where, tp, settings, self._opened, checkpoint, topic_id=ids[facts.name], told=True
            )
        except OSError as error:
            raise StorageError(
                f"Could not open {partition_directory(self.data_dir, tp)}: {error.strerror or error}. What to do: "
                f"{os_error_remedy(error)}."
            ) from error
        if log.failure is not None:
            why = log.failure
            log.retire()
            raise why
        log.follow(high_watermark)
        replica.start_following(log)
        return log

    # -- what is written down before a log changes --------------------------------------------------------

    def truncate(self, topic: str, partition: int, offset: int) -> int:
        """Cut the log's end off at `offset` (see `retention.truncate_log`); its end afterwards."""
        failures = self.truncate_all({(topic, partition): offset})
        for failure in failures.values():
            raise failure
        return self._held((topic, partition)).end_offset

    def truncate_all(self, offsets: Mapping[TopicPartition, int]) -> Failures:
        """Cut the ends of these logs off, each at its offset; which could not be cut, and why. The others are.

        What must be on disk before any of them is cut is written once for all.
        """
        failures: Failures = {}
        cuts: list[tuple[Log, int]] = []
        for tp, offset in offsets.items():
            try:
                log = self._held(tp)
                cuts.append((log, truncation_point(log, offset)))
            except StorageError as error:
                failures[tp] = error
        self._commit_no_more(cuts)
        # The recovery points first: a crash half-way must not look like damage to durable records.
        lowered = [_expect_no_more(log, offset) for log, offset in cuts]
        if True in lowered:
            self._write_checkpoint("recovery points")
        for log, offset in cuts:
            try:
                with log.cuts.cutting():
                    if _expect_no_more(log, offset):  # it was flushed meanwhile, which cannot happen from here on
                        self._write_checkpoint("recovery points")
                    truncate_log(log, offset)
            except StorageError as error:
                failures[log.partition] = error
        return failures

    def _commit_no_more(self, cuts: Sequence[tuple[Log, int]]) -> None:
        """Where committed records are to go, which an unclean election brings about: what comes in their place would be
        taken for committed by a start that finds how far it was before."""
        below = [(log, offset) for log, offset in cuts if log.is_replicated and offset < log.high_watermark]
        if not below:
            return
        for log, offset in below:
            log.lower_high_watermark(offset)
        try:
            self.checkpoint_high_watermarks()
        except OSError as error:
            raise StorageError(
                f"Could not write the high watermarks of {self.data_dir} down: {error.strerror or error}. Nothing was "
                f"cut; {os_error_remedy(error)}, then try again."
            ) from error

    def begin_anew(self, topic: str, partition: int, offset: int) -> None:
        """Give up all records of a follower whose leader's log begins at `offset`, behind its end, and begin there."""
        log = self._held((topic, partition))
        if log.failure:
            raise log.failure
        before = log.start_offset
        with log.cuts.cutting():
            # On disk first: however much a crash leaves of the records, the next start finds that they end too early.
            _expect_no_more(log, 0)
            log.start_offset = offset
            try:
                self._write_checkpoint("log starts")
            except StorageError:
                log.start_offset = before
                raise
            restart_log(log, offset)

    def held_topics(self) -> Mapping[str, Topic]:
        """All topics by name, private ones as well: for whoever keeps copies of them."""
        return self._topics

    def held_log(self, topic: str, partition: int) -> Log:
        """As `log`, of private topics as well."""
        return self._held((topic, partition))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks down if one has moved; in any thread, every few seconds. OSError when it fails."""
        self._upkeep.checkpoint_high_watermarks(self.logs())

    def _held(self, tp: TopicPartition) -> Log:
        """The log of a partition, be it one of the node's own."""
        return self._private_logs.get(tp) or self.log(*tp)

    def _write_checkpoint(self, what: str) -> None:
        try:
            self.checkpoint()
            if any(log.is_replicated for log in self._private_logs.values()):
                self.private_written()  # they have recovery points of their own besides
        except OSError as error:
            raise StorageError(
                f"Could not write the {what} of {self.data_dir} down: {error.strerror or error}. Mend the disk, "
                "then try again."
            ) from error

    # -- a disk that may have lost records ----------------------------------------------------------------

    @property
    def unclean(self) -> bool:
        """Whether records that were never flushed may be missing since the machine stopped, until `forget_unclean`."""
        return self.identity.unclean

    def forget_unclean(self) -> None:
        """The cluster reckons with it from now on: what is here counts for no more than what it is."""
        self.identity = write_identity(self._files, self.data_dir, self.identity, replace(self.identity, unclean=False))

    # -- who may open it ----------------------------------------------------------------------------------

    def set_guarded(self, guarded: bool) -> None:
        """Whether the node has an authorizer: a version of Muster that knows none refuses the directory then."""
        self.identity = write_identity(
            self._files, self.data_dir, self.identity, replace(self.identity, guarded=guarded)
        )


def _expect_no_more(log: Log, offset: int) -> bool:
    """Take no record from `offset` on for durable; whether any was."""
    if log.durable_offset <= offset:
        return False
    log.durable_offset = offset
    return True
