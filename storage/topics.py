"""Topics, their logs, and the files that hold them together. Changed by one thread."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from storage.catalog import CatalogEntry, check_name, format_id, load_catalog, save_catalog
from storage.checkpoint import read_offsets
from storage.config import LogSettings, TopicSettings
from storage.data_dir import (
    CLEANER_POINTS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Identity,
    leave_clean_mark,
    take_clean_mark,
    take_directory,
)
from storage.errors import (
    DataDirectoryError,
    InvalidPartitions,
    InvalidTopic,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from storage.files import Files, RealFiles, remove_tree
from storage.loader import create_log, open_log
from storage.log import Log
from storage.log_state import Recovered
from storage.open_segments import OpenSegments
from storage.periodic import Upkeep, write_checkpoints
from storage.producer_ids import ProducerIds
from storage.types import Topic, TopicPartition

FEW_PARTITIONS = 8
MAKERS = 16
"""So many partitions are made at once, if there are more than a few."""

logger = logging.getLogger("muster.storage")


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Topics:
    """The topics of one node and their logs, kept in one data directory.

    Opening recovers what the last process left; DataDirectoryError when the directory is not ours to use. A directory
    that is made now belongs to `cluster_id`; None draws one.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        settings: LogSettings | None = None,
        files: Files | None = None,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        clock_ms: Callable[[], int] = _wall_clock_ms,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.settings = settings or LogSettings()
        self._files: Files = files or RealFiles()
        self._clock_ms = clock_ms
        self._random_bytes = random_bytes
        self._opened = OpenSegments(self.settings.max_open_files)
        self._catalog: dict[str, CatalogEntry] = {}
        self._topics: dict[str, Topic] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._broken: dict[TopicPartition, StorageError] = {}
        self._topic_listeners: list[Callable[[], None]] = []
        self._append_listeners: list[Callable[[str, int], None]] = []
        self._lock, identity, fresh = take_directory(self._files, self.data_dir, node_id, random_bytes, cluster_id)
        self.identity: Identity = identity
        self.closed = False
        self._producer_ids = ProducerIds(self._files, self.data_dir)
        self._upkeep = Upkeep(self._files, self.data_dir, self.settings)
        try:
            self._load(fresh)
        except OSError as error:
            self._lock.release()
            raise DataDirectoryError(
                f"The data directory {self.data_dir} cannot be opened: {error}. Check its permissions and the disk."
            ) from error
        except BaseException:
            self._lock.release()
            raise

    @property
    def cluster_id(self) -> str:
        """22 characters, fixed when the data directory was made."""
        return self.identity.cluster_id

    @property
    def node_id(self) -> int:
        return self.identity.node_id

    # -- opening and closing ------------------------------------------------------------------------------

    def _load(self, fresh: bool) -> None:
        files, path = self._files, self.data_dir
        if fresh:
            save_catalog(files, path, {})
        clean = take_clean_mark(files, path)
        self._catalog = load_catalog(files, path)
        self._finish_deletions()
        points = self._checkpoint(RECOVERY_POINTS)
        starts = self._checkpoint(LOG_STARTS)
        cleaned = self._checkpoint(CLEANER_POINTS)
        for entry in self._catalog.values():
            topic = entry.topic()
            self._topics[topic.name] = topic
            settings = self.settings.for_topic(topic.configs)
            for number in range(topic.partitions):
                tp = (topic.name, number)
                directory = self._directory(tp)
                if not files.is_dir(directory):
                    self._broken[tp] = StorageError(
                        f"The directory {directory} of partition {topic.name}-{number} is gone. Restore it from a copy."
                    )
                    continue
                try:
                    log = open_log(
                        files, directory, tp, settings, self._opened, clean=clean,
                        recovery_point=points.get(tp, 0), start_offset=starts.get(tp, 0), topic_id=entry.id,
                    )  # fmt: skip
                except StorageError as error:
                    logger.error("%s", error)
                    self._broken[tp] = error
                    continue
                log.cleaned_to = cleaned.get(tp, 0)
                self._adopt(tp, log)

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(
                self._files, f"{self.data_dir}/{name}", {entry.name: entry.id for entry in self._catalog.values()}
            )
        except DataDirectoryError as error:
            logger.error("%s It is taken as empty.", error)
            return {}

    def _adopt(self, tp: TopicPartition, log: Log) -> None:
        log.listeners = self._append_listeners
        self._logs[tp] = log

    def recovered(self) -> dict[TopicPartition, Recovered]:
        """What opening had to cut off or found damaged, by partition."""
        found = {tp: log.recovered for tp, log in self._logs.items()}
        return {tp: state for tp, state in found.items() if state.truncated_bytes or state.damage}

    def close(self) -> None:
        """Flush all, write the checkpoints and leave the mark of a clean shutdown; release the directory.

        Without the mark (something failed on the way) the next start checks the logs.
        """
        if self.closed:
            return
        self.closed = True
        self._upkeep.let_go(self._logs.values())
        clean = not self._broken
        for log in self._logs.values():
            try:
                log.close()
                clean = clean and log.failure is None
            except (OSError, StorageError) as error:
                clean = False
                logger.error("Closing %s-%d failed: %s", *log.partition, error)
        try:
            self.checkpoint()
            if clean:
                leave_clean_mark(self._files, self.data_dir)
        except OSError as error:
            logger.error("The shutdown of %s could not be marked clean: %s", self.data_dir, error)
        finally:
            self._lock.release()

    def checkpoint(self) -> None:
        """Write the recovery points, log starts and high watermarks down."""
        write_checkpoints(self._files, self.data_dir, self._logs.values())

    # -- topics -------------------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return MappingProxyType(self._topics)

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"There is no topic '{name}'. Create it first, or check its spelling.")
        return topic

    def topic_settings(self, name: str) -> TopicSettings:
        return self.settings.for_topic(self.topic(name).configs)

    def check_new_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicSettings:
        """Refuse what `create_topic` would refuse."""
        check_name(name, self._topics)
        if name in self._topics:
            raise TopicAlreadyExists(f"Topic '{name}' exists already.")
        self._check_count(name, 0, partitions)
        return self.settings.for_topic(configs)

    def _check_count(self, name: str, present: int, total: int) -> None:
        room = self.settings.max_partitions - len(self._logs) - len(self._broken)
        if total <= present:
            raise InvalidPartitions(f"Topic '{name}' cannot have {total} partitions; expected more than {present}.")
        if total - present > room:
            raise InvalidPartitions(
                f"{total - present} more partitions for topic '{name}' exceed the node's limit of "
                f"{self.settings.max_partitions} (max.partitions); {room} are left."
            )

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, internal: bool = False
    ) -> Topic:
        """Make a topic with empty partitions; it survives a crash once this returns."""
        configs = dict(configs or {})
        settings = self.check_new_topic(name, partitions, configs)
        self._finish_deletion_of(name)
        topic = Topic(name, self._random_bytes(16), partitions, configs, internal)
        self._make_partitions(topic, 0, settings)
        return topic

    def add_partitions(self, name: str, total: int) -> Topic:
        """Raise a topic's partition count to `total`."""
        topic = self.topic(name)
        self._check_count(name, topic.partitions, total)
        grown = Topic(name, topic.id, total, topic.configs, topic.internal)
        self._make_partitions(grown, topic.partitions, self.settings.for_topic(topic.configs))
        return grown

    def _make_partitions(self, topic: Topic, first: int, settings: TopicSettings) -> None:
        """Directories first, then the catalog: a topic that is listed has all its logs."""
        try:
            made = dict(self._make_logs(topic, first, settings))
            self._files.sync_dir(self.data_dir)
            self._save({**self._catalog, topic.name: CatalogEntry.of(topic)})
        except OSError as error:
            raise StorageError(
                f"Could not create partitions of '{topic.name}' in {self.data_dir}: {error.strerror or error}. "
                "Free some space or mend the disk, then try again."
            ) from error
        for tp, log in made.items():
            self._adopt(tp, log)
        self._topics = {**self._topics, topic.name: topic}
        self._tell_topics()

    def _make_logs(self, topic: Topic, first: int, settings: TopicSettings) -> Iterator[tuple[TopicPartition, Log]]:
        """Many at once: each waits for the disk more than it works, and a disk serves many who wait together."""
        wanted = [(topic.name, number) for number in range(first, topic.partitions)]
        if len(wanted) < FEW_PARTITIONS:
            return ((tp, self._make_log(tp, topic, settings)) for tp in wanted)
        with ThreadPoolExecutor(MAKERS, thread_name_prefix="partitions") as pool:
            return zip(wanted, list(pool.map(lambda tp: self._make_log(tp, topic, settings), wanted)), strict=True)

    def _make_log(self, tp: TopicPartition, topic: Topic, settings: TopicSettings) -> Log:
        directory = self._directory(tp)
        if self._files.is_dir(directory):
            # Left by a creation that did not come to its end, or by a foreign hand: never take over its records.
            remove_tree(self._files, directory)
        now_ms, topic_id = self._clock_ms(), format_id(topic.id)
        return create_log(self._files, directory, tp, settings, self._opened, now_ms=now_ms, topic_id=topic_id)

    def check_more_partitions(self, name: str, total: int) -> None:
        """Refuse what `add_partitions` would refuse."""
        self._check_count(name, self.topic(name).partitions, total)

    def check_writable(self, name: str) -> None:
        """InvalidTopic for the node's own topics, which clients may not change."""
        if self.topic(name).internal:
            raise InvalidTopic(f"Topic '{name}' is internal; only the node itself writes to it.")

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records for good."""
        topic = self.topic(name)
        try:
            self._save({**self._catalog, name: CatalogEntry.of(topic, deleting=True)})
            self._topics = {other: kept for other, kept in self._topics.items() if other != name}
            self._upkeep.let_go([self._logs[tp] for tp in self._logs if tp[0] == name])
            for number in range(topic.partitions):
                self._broken.pop((name, number), None)
                log = self._logs.pop((name, number), None)
                if log:
                    log.retire()
            self._finish_deletions()
        except OSError as error:
            raise StorageError(
                f"Topic '{name}' could not be removed from disk: {error.strerror or error}. The next start goes on."
            ) from error
        finally:
            if name not in self._topics:
                self._tell_topics()

    def _finish_deletion_of(self, name: str) -> None:
        """What is left of a topic of that name must go before there is another one."""
        if name not in self._catalog:
            return
        try:
            self._finish_deletions(name)
        except OSError as error:
            raise StorageError(
                f"Topic '{name}' is still being removed from disk, which fails: {error.strerror or error}. Mend the "
                "disk, then try again."
            ) from error

    def _finish_deletions(self, only: str | None = None) -> None:
        going = [entry for entry in self._catalog.values() if entry.deleting and only in (None, entry.name)]
        for entry in going:
            for number in range(entry.partitions):
                directory = self._directory((entry.name, number))
                if self._files.is_dir(directory):
                    remove_tree(self._files, directory)
        if going:
            self._files.sync_dir(self.data_dir)
            self._upkeep.forget_topics({entry.name for entry in going})
            self._save({name: entry for name, entry in self._catalog.items() if entry not in going})

    def _save(self, catalog: dict[str, CatalogEntry]) -> None:
        save_catalog(self._files, self.data_dir, catalog)
        self._catalog = catalog

    def _directory(self, tp: TopicPartition) -> str:
        return f"{self.data_dir}/{tp[0]}-{tp[1]}"

    # -- logs ---------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """The partition's log; UnknownTopicOrPartition, or StorageError when its directory is gone."""
        log = self._logs.get((topic, partition))
        if log is None:
            raise self._no_log(topic, partition)
        return log

    def _no_log(self, topic: str, partition: int) -> StorageError:
        broken = self._broken.get((topic, partition))
        if broken:
            return broken
        count = self.topic(topic).partitions
        return UnknownTopicOrPartition(
            f"Topic '{topic}' has no partition {partition}; its partitions are 0 to {count - 1}."
        )

    def logs(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    # -- listeners ----------------------------------------------------------------------------------------

    def on_append(self, listener: Callable[[str, int], None]) -> None:
        """Call with topic and partition when more can be read, possibly from the thread that flushed."""
        self._append_listeners.append(listener)

    def on_topics_changed(self, listener: Callable[[], None]) -> None:
        """Call after topics or partition counts changed."""
        self._topic_listeners.append(listener)

    def _tell_topics(self) -> None:
        for listener in self._topic_listeners:
            listener()
