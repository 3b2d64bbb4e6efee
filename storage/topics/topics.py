"""Topics, their logs, and the files that hold them together. Changed by one thread.

`TopicListeners` is notified of new records and of changes of topics, in the thread in which something happened unless
it says otherwise.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import (
    DataDirectoryError,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicName,
    NotLeaderOrFollower,
    StorageError,
    StorageTroubles,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from muster.storage.files import Files, RealFiles, read_trusted_offsets
from muster.storage.logs.log import Log, LogRecovery
from muster.storage.logs.producer_state import LocalProducerIds
from muster.storage.logs.segment import OpenSegments
from muster.storage.logs.transactions import StableHolds
from muster.storage.topics.catalog import (
    PRIVATE_TOPICS,
    CatalogEntry,
    TopicPlan,
    TopicPlans,
    check_not_internal,
    check_topic_name,
    colliding_name,
    describe_topics,
    load_catalog,
    save_catalog,
)
from muster.storage.topics.data_dir import (
    CLEANER_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PRIVATE_POINTS,
    RECOVERY_POINTS,
    DirectoryIdentity,
    leave_clean_mark,
    note_start,
    take_clean_mark,
    take_directory,
)
from muster.storage.topics.log_directories import FEW_PARTITIONS, close_logs, make_logs, open_logs, remove_logs
from muster.storage.topics.maintenance import LogMaintenance, merge_furthest, write_private_points
from muster.storage.types import Topic, TopicPartition

# Listeners
# ---------


class TopicListeners:
    """Called by the thread in which something happened, unless it says otherwise."""

    def __init__(self) -> None:
        self._topic_listeners: list[Callable[[], None]] = []
        self._append_listeners: list[Callable[[str, int], None]] = []

    def on_append(self, listener: Callable[[str, int], None]) -> None:
        """Call with topic and partition when more can be read, possibly from the thread that flushed."""
        self._append_listeners.append(listener)

    def on_topics_changed(self, listener: Callable[[], None]) -> None:
        """Call after topics or partition counts changed."""
        self._topic_listeners.append(listener)

    def tell_topics(self) -> None:
        """Call the listeners, after `make` or `hide`; in the thread in which they live."""
        for listener in self._topic_listeners:
            listener()


logger = logging.getLogger("muster.storage")


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class TopicStore(TopicListeners):
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
        super().__init__()
        self._change_listeners: list[Callable[[int], None]] = []
        self.data_dir = os.path.abspath(data_dir)
        self.settings = settings or LogSettings()
        self._files: Files = files or RealFiles()
        self._clock_ms = clock_ms
        self._random_bytes = random_bytes
        self._opened = OpenSegments(self.settings.max_open_files)
        self._catalog: dict[str, CatalogEntry] = {}
        self._topics: dict[str, Topic] = {}
        self._public: Mapping[str, Topic] = {}
        self._alike: dict[str, str] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._private_logs: dict[TopicPartition, Log] = {}
        self._broken: dict[TopicPartition, StorageError] = {}
        self.troubles = StorageTroubles()
        self.holds = StableHolds(clock_ms)
        self._lock, identity, fresh = take_directory(self._files, self.data_dir, node_id, random_bytes, cluster_id)
        self.identity: DirectoryIdentity = identity
        self.closed = False
        self._changing = threading.Lock()
        self._producer_ids = LocalProducerIds(self._files, self.data_dir)
        self._upkeep = LogMaintenance(self._files, self.data_dir, self.settings)
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

    def on_logs_changed(self, listener: Callable[[int], None]) -> None:
        """Call with how many logs were made, some at a time, or (less than 0) are gone; in the thread that does it."""
        self._change_listeners.append(listener)

    def _tell_change(self, count: int) -> None:
        for listener in self._change_listeners:
            listener(count)

    # -- opening and closing ------------------------------------------------------------------------------

    def _load(self, fresh: bool) -> None:
        files, path = self._files, self.data_dir
        if fresh:
            save_catalog(files, path, {})
        self._catalog = load_catalog(files, path)
        self._finish_deletions([entry for entry in self._catalog.values() if entry.going])
        staying = [entry.topic() for entry in self._catalog.values()]
        loose = any(self.settings.for_topic(topic.configs).flush_messages != 1 for topic in staying)
        self.identity = note_start(files, path, self.identity, self._random_bytes, loose=loose)
        clean = take_clean_mark(files, path)
        ids = {entry.name: entry.id for entry in self._catalog.values()}
        points, private, starts, cleaned = (
            read_trusted_offsets(files, f"{path}/{name}", ids)
            for name in (RECOVERY_POINTS, PRIVATE_POINTS, LOG_STARTS, CLEANER_POINTS)
        )
        points = merge_furthest(points, private)
        self._know({topic.name: topic for topic in staying})
        self._alike = {colliding_name(name): name for name in self._topics}
        replicated = any(topic.held is not None for topic in staying)
        marks = read_trusted_offsets(files, f"{path}/{HIGH_WATERMARKS}", ids) if replicated else {}
        logs, self._broken = open_logs(
            files,
            path,
            self._topics.values(),
            self.settings,
            self._opened,
            clean=clean,
            points=points,
            starts=starts,
            marks=marks,
        )
        for tp, why in self._broken.items():
            self.troubles.gone(tp, why)
        for log in logs:
            log.cleaned_to = cleaned.get(log.partition, 0)
        self._adopt(logs)
        self._tell_known_high_watermarks(marks)

    def _tell_known_high_watermarks(self, marks: Mapping[TopicPartition, int]) -> None:
        """Logs of a cluster begin as followers, with what was committed when it was last written down."""
        for log in self.logs():
            if self._topics[log.partition[0]].held is not None:
                log.follow(marks.get(log.partition, 0))
                log.following = True

    def _adopt(self, logs: Sequence[Log]) -> None:
        for log in logs:
            log.listeners = self._append_listeners
            log.troubles = self.troubles
            log.measure_holds(self.holds)
            if log.recovered.damage:
                self.troubles.damaged(log.partition, log.recovered.damage)
            if log.recovered.loss:
                self.troubles.cut(log.partition, log.recovered.loss)
            (self._private_logs if log.partition[0] in PRIVATE_TOPICS else self._logs)[log.partition] = log

    def _know(self, topics: dict[str, Topic]) -> None:
        """These are all there are from now on."""
        self._topics = topics
        self._public = MappingProxyType({name: topic for name, topic in topics.items() if name not in PRIVATE_TOPICS})

    def recovered(self) -> dict[TopicPartition, LogRecovery]:
        """What opening had to cut off or found damaged, by partition."""
        found = {log.partition: log.recovered for log in self.logs()}
        return {tp: state for tp, state in found.items() if state.truncated_bytes or state.damage}

    def close(self) -> None:
        """Flush all, write the checkpoints and leave the mark of a clean shutdown; release the directory.

        Without the mark (something failed on the way) the next start checks the logs.
        """
        if self.closed:
            return
        self.closed = True
        self._upkeep.let_go(list(self.logs()))
        with self._upkeep.ticking, self._changing:  # What nobody waits for any more comes to its end first.
            self._close()

    def _close(self) -> None:
        clean = not self._broken
        try:
            clean = close_logs(self._files, self.data_dir, list(self.logs())) and clean
            self.checkpoint()
            if clean:
                leave_clean_mark(self._files, self.data_dir)
        except OSError as error:
            logger.error("The shutdown of %s could not be marked clean: %s", self.data_dir, error)
        finally:
            self._lock.release()

    def checkpoint(self) -> None:
        """Write the recovery points, log starts and high watermarks down."""
        self._upkeep.checkpoint(self.logs())

    # -- topics -------------------------------------------------------------------------------------------

    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, but for private ones."""
        return self._public

    def topic(self, name: str) -> Topic:
        topic = self._public.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"There is no topic '{name}'. Create it first, or check its spelling.")
        return topic

    def topic_settings(self, name: str) -> TopicSettings:
        return self.settings.for_topic(self.topic(name).configs)

    def check_new_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        beside: TopicPlans | None = None,
        *,
        internal: bool = False,
    ) -> TopicSettings:
        """Refuse what `create_topic` would refuse."""
        plans = beside or TopicPlans()
        if colliding_name(name) in PRIVATE_TOPICS and not internal:
            raise InvalidTopicName(f"'{name}' is a name that nodes keep for themselves; expected another one.")
        check_topic_name(name, self._alike)
        check_topic_name(name, plans.alike)
        if name in self._topics or colliding_name(name) in plans.alike:
            raise TopicAlreadyExists(f"Topic '{name}' exists already.")
        self._check_count(name, 0, partitions, plans.coming)
        self.settings.check_given(configs)
        return self.settings.for_topic(configs)

    def _check_count(self, name: str, present: int, total: int, coming: int = 0) -> None:
        room = self.settings.max_partitions - len(self._logs) - len(self._broken) - coming
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
        return self._made_at_once(self.plan_topic(name, partitions, configs, internal))

    def add_partitions(self, name: str, total: int) -> Topic:
        """Raise a topic's partition count to `total`."""
        return self._made_at_once(self.plan_growth(name, total))

    def plan_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        internal: bool = False,
        beside: TopicPlans | None = None,
    ) -> TopicPlan:
        """What `make` is to make, if nothing speaks against it; added to the plans of the same call."""
        plans = beside or TopicPlans()
        configs = dict(configs or {})
        settings = self.check_new_topic(name, partitions, configs, plans, internal=internal)
        return plans.add(TopicPlan(Topic(name, self._random_bytes(16), partitions, configs, internal), 0, settings))

    def plan_growth(self, name: str, total: int, beside: TopicPlans | None = None) -> TopicPlan:
        """What `make` is to add, if nothing speaks against it; added to the plans of the same call."""
        plans = beside or TopicPlans()
        topic = self.topic(name)
        if colliding_name(name) in plans.alike:
            raise InvalidRequest(f"Topic '{name}' is to be changed twice at once; expected once.")
        self._check_count(name, topic.partitions, total, plans.coming)
        grown = Topic(name, topic.id, total, topic.configs, topic.internal)
        return plans.add(TopicPlan(grown, topic.partitions, self.settings.for_topic(topic.configs)))

    def _made_at_once(self, plan: TopicPlan) -> Topic:
        (result,) = self.make([plan])
        if isinstance(result, StorageError):
            raise result
        self.tell_topics()
        return result

    def make(self, plans: Sequence[TopicPlan]) -> list[Topic | StorageError]:
        """Make what was planned; each topic is there whole once it can be seen, or after a crash not at all.

        Directories first, then the catalog: a topic that is listed has all its logs. In any thread, but one change of
        topics at a time; whoever calls sees to `tell_topics`.
        """
        with self._changing:
            return self._make(plans)

    def _make(self, plans: Sequence[TopicPlan]) -> list[Topic | StorageError]:
        results: list[Topic | StorageError] = []
        made: list[tuple[TopicPlan, list[Log]]] = []
        for plan in plans:
            try:
                if not plan.first:
                    self._finish_deletion_of(plan.topic.name)
                made.append(
                    (
                        plan,
                        make_logs(self._files, self.data_dir, plan, self._opened, self._clock_ms(), self._tell_change),
                    )
                )
                results.append(plan.topic)
            except StorageError as refusal:
                results.append(refusal)
            except OSError as error:
                results.append(plan.failed(self.data_dir, error))
        try:
            if any(len(logs) >= FEW_PARTITIONS for _, logs in made):
                self._files.sync_all(self.data_dir)
            self._files.sync_dir(self.data_dir)
            self._save({**self._catalog, **{plan.topic.name: CatalogEntry.of(plan.topic) for plan, _ in made}})
        except OSError as error:
            return [
                each if isinstance(each, StorageError) else plan.failed(self.data_dir, error)
                for plan, each in zip(plans, results, strict=True)
            ]
        for plan, logs in made:
            self._adopt(logs)
            self._alike[colliding_name(plan.topic.name)] = plan.topic.name
        self._know({**self._topics, **{plan.topic.name: plan.topic for plan, _ in made}})
        return results

    def check_more_partitions(self, name: str, total: int) -> None:
        """Refuse what `add_partitions` would refuse."""
        self._check_count(name, self.topic(name).partitions, total)

    def check_writable(self, name: str) -> None:
        """InvalidTopic for the node's own topics, which clients may not change."""
        check_not_internal(self.topic(name))

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records for good."""
        self.topic(name)
        try:
            self.hide([name])
        finally:
            if name not in self._topics:
                self.tell_topics()
        self.clear_away()

    def hide(self, names: Sequence[str]) -> None:
        """Topics that are there are gone for everybody once this returns; their files wait for `clear_away`.

        In any thread, but one change of topics at a time; whoever calls sees to `tell_topics`.
        """
        going = {name: self._topics[name] for name in names}
        try:
            self._save({**self._catalog, **{name: CatalogEntry.of(t, deleting=True) for name, t in going.items()}})
        except OSError as error:
            raise StorageError(
                f"{describe_topics(names)} could not be removed: {error.strerror or error}. "
                "Mend the disk, then try again."
            ) from error
        self._know({name: kept for name, kept in self._topics.items() if name not in going})
        for name in going:
            self._alike.pop(colliding_name(name), None)
        self._part_with([(name, number) for name, topic in going.items() for number in topic.here])

    def _part_with(self, partitions: Sequence[TopicPartition]) -> None:
        """Their logs refuse everything from now on."""
        self._upkeep.let_go([self._logs[tp] for tp in partitions if tp in self._logs])
        for tp in partitions:
            self._broken.pop(tp, None)
            self.troubles.forget(tp)
            self.holds.forget(tp)
            log = self._logs.pop(tp, None) or self._private_logs.pop(tp, None)
            if log:
                with log.reshaping:
                    log.retire()
        self._tell_change(-len(partitions))

    def clear_away(self) -> None:
        """Remove the files of all topics that were hidden; the next start goes on with what is left."""
        going: list[CatalogEntry] = []
        try:
            with self._changing:  # what is going is looked up in it: meanwhile one may be made again by that name
                going = [entry for entry in self._catalog.values() if entry.going]
                self._finish_deletions(going)
        except OSError as error:
            names = describe_topics([entry.name for entry in going])
            raise StorageError(
                f"{names} could not be removed from disk: {error.strerror or error}. The next start goes on."
            ) from error

    def _finish_deletion_of(self, name: str) -> None:
        """What is left of a topic of that name must go before there is another one."""
        try:
            self._finish_deletions([entry] if (entry := self._catalog.get(name)) and entry.going else [])
        except OSError as error:
            raise StorageError(
                f"Topic '{name}' is still being removed from disk, which fails: {error.strerror or error}. Mend the "
                "disk, then try again."
            ) from error

    def _finish_deletions(self, going: Sequence[CatalogEntry]) -> None:
        gone = [(entry.name, number) for entry in going for number in entry.going]
        remove_logs(self._files, self.data_dir, gone)
        if going:
            self._files.sync_dir(self.data_dir)
            self._upkeep.forget(set(gone))
            left = {entry.name: entry.without_going() for entry in going}
            self._save({name: each for name, old in self._catalog.items() if (each := left.get(name, old)) is not None})

    def _save(self, catalog: dict[str, CatalogEntry]) -> None:
        save_catalog(self._files, self.data_dir, catalog)
        self._catalog = catalog

    # -- logs ---------------------------------------------------------------------------------------------

    def hosted_log(self, topic: str, partition: int) -> Log:
        """See `AppendableLog`."""
        return self.log(topic, partition)

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
        known = self.topic(topic)
        count = known.partitions
        if 0 <= partition < count and partition not in known.here:
            return NotLeaderOrFollower(f"Partition {topic}-{partition} is not held by this node. Look its leader up.")
        return UnknownTopicOrPartition(
            f"Topic '{topic}' has no partition {partition}; its partitions are 0 to {count - 1}."
        )

    def private_log(self, topic: str, partition: int) -> Log | None:
        """For the node's own hands. StorageError when its directory is gone, or if a client once made the topic."""
        if (topic, partition) in self._broken:
            raise self._broken[topic, partition]
        if topic in self._topics and not self._topics[topic].internal:
            raise StorageError(f"Topic '{topic}' is not the node's: a client made it when one could. It has to go.")
        return self._private_logs.get((topic, partition))

    def private_written(self) -> None:
        """What private logs have is about to be acknowledged: a start that finds less says so. Blocks; OSError."""
        write_private_points(self._files, self.data_dir, self._private_logs.values())

    def logs(self) -> Iterator[Log]:
        """Every log there is, private ones as well: they are kept as all others are."""
        return iter([*self._logs.values(), *self._private_logs.values()])
