"""Groups in which console consumers of old releases and consumers of ours share topics, while records keep coming."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from muster.client import Consumer, Producer
from muster.client.members.zookeeper_assignment import (
    OWN_RULES,
    ClaimedShare,
    ConsumerGroupView,
    EraRules,
    GroupRegistration,
    ZookeeperStrategy,
    compute_share,
)
from muster.coordinator.zookeeper import layout
from tests.era.releases import OldProgram
from tests.support.node import NodeProcess, SeveralNodes
from tests.support.zookeeper.consumers import Process, wait_for

EVERY_S: Final = 0.01
"""Between two records: enough that some are on their way at any moment, few enough for a busy machine."""
TIMES: Final = {
    "zookeeper.session.timeout.ms": 10_000,
    "rebalance.backoff.ms": 500,
    "rebalance.max.retries": 40,
    "auto.commit.interval.ms": 500,
}
"""Both kinds of consumer know these. Servers of tests end sessions after 4 s of silence at most."""
ALLOWED_MS: Final = int(TIMES["zookeeper.session.timeout.ms"]) + int(TIMES["rebalance.max.retries"]) * int(
    TIMES["rebalance.backoff.ms"]
)
"""By the era's own rules a claim outlives its owner by its session at most, and others try again for so long; one that
cannot claim within that time has given up, and says so."""
STEADY_LOOKS: Final = 10
"""In a row: between two rebalances a group may look settled for a moment."""
numbers = count()


class RecordStream:
    """Records with numbers, dealt in turn over the partitions of some topics, until it is stopped."""

    def __init__(self, node: NodeProcess | SeveralNodes, **partitions: int) -> None:
        self.sent = 0
        self._node = node
        self._targets: list[tuple[str, int]] = []
        self.spread(**partitions)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def spread(self, **partitions: int) -> None:
        """Over these from now on."""
        self._targets = [(topic, number) for topic, count in partitions.items() for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            # Each spread has a producer of its own, which knows the partitions there are by then.
            targets = self._targets
            with Producer({"bootstrap.servers": self._node.address}) as producer:
                while targets is self._targets and not self._over.wait(EVERY_S):
                    topic, number = targets[self.sent % len(targets)]
                    producer.produce(topic, value=str(self.sent).encode(), partition=number)
                    self.sent += 1
                producer.flush()


class MixedGroup:
    """Members by name, and how often each record was read. `rules` are what both kinds are to agree on."""

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        client: KazooClient,
        strategy: ZookeeperStrategy = ZookeeperStrategy.RANGE,
        rules: EraRules = OWN_RULES,
    ) -> None:
        self.group_id = f"g{next(numbers)}"
        self.folder = folder
        self.zookeeper = zookeeper
        self.client = client
        self.strategy = strategy
        self.rules = rules
        self.old: dict[str, OldProgram] = {}
        self.own: dict[str, Consumer] = {}
        self.processes: dict[str, Process] = {}
        """Ours, in processes of their own; they commit after each record."""
        self.read: Counter[int] = Counter()
        self._settled: dict[tuple[str, int], str] = {}
        self._taken: Counter[str] = Counter()
        """Lines of an old consumer that were counted already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            told = "\n".join(f"{name}: {program.log_tail()}" for name, program in self.old.items())
            error.add_note(f"owners {self.owners()}, ids {sorted(self.members())}\n{told}")
        for program in self.old.values():
            program.kill()
        for process in self.processes.values():
            process.kill()
        for consumer in self.own.values():
            consumer.close()

    # Members come and go

    def start_old(self, release: str, name: str, *chosen: str, **more: object) -> OldProgram:
        """A console consumer; `chosen` such as `--topic t`."""
        given = TIMES | {
            "group.id": self.group_id,
            "consumer.id": name,
            "partition.assignment.strategy": self.strategy.value,
        }
        given |= {"fetch.wait.max.ms": 100, "refresh.leader.backoff.ms": 100}
        given |= {key.replace("_", "."): value for key, value in more.items()}
        properties = self.folder / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        program = OldProgram(
            *(self.folder, release, "kafka.tools.ConsoleConsumer", "--zookeeper", self.zookeeper, *chosen),
            *("--consumer.config", str(properties)),
        )
        self.old[name] = program
        return program

    def start_own(self, name: str, *topics: str, black_list: bool = False, **more: object) -> Consumer:
        consumer = Consumer(self._own_properties(name, more))
        consumer.subscribe(list(topics), black_list=black_list)
        self.own[name] = consumer
        return consumer

    def start_process(self, name: str, topic: str, **more: object) -> Process:
        self.processes[name] = Process(self._own_properties(name, more), topic)
        return self.processes[name]

    def _own_properties(self, name: str, more: Mapping[str, object]) -> dict[str, Any]:
        given = {"group.id": self.group_id, "group.protocol": "zookeeper", "consumer.id": name}
        given |= {"zookeeper.connect": self.zookeeper, "partition.assignment.strategy": self.strategy.value}
        given |= {"auto.offset.reset": "smallest"}
        return TIMES | given | {key.replace("_", "."): value for key, value in more.items()}

    def close_own(self, name: str) -> None:
        self.own.pop(name).close()

    def stop_old(self, name: str) -> None:
        """It leaves in order; what it had printed until then counts."""
        self.old[name].stop()
        self.pump()
        del self.old[name]

    def kill(self, name: str) -> list[int]:
        """SIGKILL; what it read and had not committed: that is read again."""
        if name in self.old:
            self.old[name].kill()
            self.pump()
            read = [int(line) for line in self.old.pop(name).lines()]
        else:
            self.processes[name].kill()
            self.pump()
            read = read_by(self.processes.pop(name))
        return read

    # How long a claim outlives its owner

    def mark(self) -> int:
        """Now, by the clock of the servers, in ms: what happens is timed by their transactions alone."""
        path = f"/marks/{self.group_id}"
        if self.client.exists(path) is None:
            self.client.create(path, makepath=True)
        return int(self.client.set(path, b"").mtime)

    def claimed_after_ms(self, since_ms: int, owned: Iterable[tuple[str, int]]) -> int:
        """How long after that moment the last of these partitions was claimed anew."""
        return max(int(self._stat("owners", topic, str(number)).ctime) for topic, number in owned) - since_ms

    def registered_after_ms(self, name: str, since_ms: int) -> int:
        """How long after that moment a member registered anew. Until then it may have read what others had claimed."""
        return int(self._stat("ids", f"{self.group_id}_{name}").ctime) - since_ms

    def owned_by(self, name: str) -> list[tuple[str, int]]:
        return [tp for tp, owner in self.owners().items() if owner == f"{self.group_id}_{name}-0"]

    def _stat(self, *parts: str) -> ZnodeStat:
        found = self.client.exists(self._path(*parts))
        assert found is not None, f"{self._path(*parts)} is there"
        return found

    def end_session(self, name: str) -> None:
        """As if the servers had not heard of a member: a second client with its session says goodbye in its name.

        A member whose connection the second one has taken may take it back before that has said so: once more, then.
        """
        path = layout.consumer_path(self.group_id, f"{self.group_id}_{name}")
        before = self.client.get(path)[1]
        session = before.ephemeralOwner

        def is_over() -> bool:
            found = self.client.exists(path)
            return found is None or found.czxid > before.czxid

        def say_goodbye() -> bool:
            twin = KazooClient(hosts=self.zookeeper.partition("/")[0], client_id=(session, make_password(session)))
            with suppress(KazooTimeoutError):
                twin.start(timeout=20)
                assert twin.client_id[0] == session or is_over(), "the servers did not take the password"
            twin.stop()
            twin.close()
            return is_over()

        self.wait_for(lambda: is_over() or say_goodbye(), f"the session of {name} is over")

        def is_back() -> bool:
            found = self.client.exists(path)
            return found is not None and found.czxid > before.czxid

        self.wait_for(is_back, f"{name} registers again")

    # What is read

    def pump(self) -> None:
        """Take what all members have read so far."""
        for consumer in self.own.values():
            self.read.update(int(message.value or b"") for message in consumer.consume(200, 0.02))
        for name, program in self.old.items():
            lines = program.lines()
            self.read.update(map(int, lines[self._taken[name] :]))
            self._taken[name] = len(lines)
        for name, process in self.processes.items():
            numbers = read_by(process)
            self.read.update(numbers[self._taken[name] :])
            self._taken[name] = len(numbers)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Until it holds, while all members read."""

        def check() -> Any:
            self.pump()
            return condition()

        wait_for(check, what)

    def settle(self, partitions: int, *, without: str = "") -> list[str]:
        """Until the members own so many partitions, each what the era's assignment gives it: the names of the owners.

        `without`: a member that stands still.
        """
        wanted = {f"{self.group_id}_{name}" for name in (*self.old, *self.own, *self.processes) if name != without}
        looks = 0

        def is_steady() -> bool:
            nonlocal looks
            looks = looks + 1 if self._is_settled(wanted, partitions) else 0
            return looks == STEADY_LOOKS

        self.wait_for(is_steady, f"{', '.join(sorted(wanted))} own their shares")
        return [
            owner.removeprefix(f"{self.group_id}_").rpartition("-")[0] for _, owner in sorted(self._settled.items())
        ]

    def drain(self, sent: int) -> list[int]:
        """Until every record was read; those that were read more than once."""
        self.wait_for(lambda: len(self.read) == sent, f"all {sent} records are read")
        return sorted(number for number, times in self.read.items() if times > 1)

    def _is_settled(self, wanted: Iterable[str], partitions: int) -> bool:
        view = self.view()
        if set(view.members) != set(wanted):
            return False
        planned: dict[tuple[str, int], str] = {}
        for name in view.members:
            share: ClaimedShare = compute_share(name, view, self.strategy, True, self.rules)
            planned |= {tp: f"{name}-{stream}" for tp, stream in share.items()}
        own = {f"{self.group_id}_{name}": consumer.assignment() for name, consumer in self.own.items()}
        held = {name: {tp for tp, owner in planned.items() if owner == f"{name}-0"} for name in own}
        self._settled = planned
        return len(planned) == partitions and planned == self.owners() and own == held

    # What lies in ZooKeeper

    def view(self) -> ConsumerGroupView:
        topics = self.children(layout.BROKER_TOPICS)
        counts = {topic: self._get(layout.topic_path(topic)) for topic in topics}
        partitions = {topic: len(layout.read_topic(topic, data)) for topic, data in counts.items() if data is not None}
        return ConsumerGroupView(self.members(), partitions, (1,))

    def members(self) -> dict[str, GroupRegistration]:
        found = {
            name: self._get(layout.consumer_path(self.group_id, name)) for name in self.children(self._path("ids"))
        }
        read = {name: layout.read_consumer(name, data) for name, data in found.items() if data is not None}
        return {name: GroupRegistration(dict(each.subscription), each.pattern) for name, each in read.items()}

    def owners(self) -> dict[tuple[str, int], str]:
        return {tp: data.decode() for tp, data in self._by_partition("owners").items()}

    def positions(self) -> dict[tuple[str, int], int]:
        return {tp: int(data) for tp, data in self._by_partition("offsets").items()}

    def begin_at(self, topic: str, partitions: int, offset: int = 0) -> None:
        """Positions to begin at: a console consumer without one begins at the end."""
        for number in range(partitions):
            self.client.create(layout.offset_path(self.group_id, topic, number), str(offset).encode(), makepath=True)

    def children(self, path: str) -> list[str]:
        try:
            return list(self.client.get_children(path))
        except NoNodeError:
            return []

    def _by_partition(self, what: str) -> dict[tuple[str, int], bytes]:
        found: dict[tuple[str, int], bytes] = {}
        for topic in self.children(self._path(what)):
            for number in self.children(self._path(what, topic)):
                data = self._get(self._path(what, topic, number))
                if data is not None:
                    found[topic, int(number)] = data
        return found

    @property
    def path(self) -> str:
        return f"/consumers/{self.group_id}"

    def _path(self, *parts: str) -> str:
        return "/".join((self.path, *parts))

    def _get(self, path: str) -> bytes | None:
        with suppress(NoNodeError):
            return bytes(self.client.get(path)[0])
        return None


def read_by(process: Process) -> list[int]:
    """Numbers of the records that a process of ours has read so far."""
    return [int(line["value"]) for line in process.told("record")]


def make_password(session: int) -> bytes:
    """What ZooKeeper gives with a session: 16 bytes of `java.util.Random`, seeded by its id and a constant.

    (`SessionTrackerImpl` and `ZooKeeperServer.generatePasswd`, 3.4 to 3.9.)
    """
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & (2**48 - 1)
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password
