"""A situation as one client plays it: its group, topics and member processes, and what the ledger says about it."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from muster.client import Admin
from tests.support.node import MUSTER
from tests.truth.clients import Client
from tests.truth.judge import Observation, Partition
from tests.truth.kafka_itself import KafkaItself
from tests.truth.nodes import HEARTBEAT_MS, SESSION_MS, Backend
from tests.truth.reports import NodeReports, Reports, WatchedReports

PATIENCE_S = 60.0
AGAIN_S = 0.25
LONG_POLL_MS = 120_000
METADATA_MS = 1_000
COMMIT_MS, NEVER = 1_000, -1
SIGNS_S = 3.0
"""For so long members read and commit before something happens to them: what they commit are their signs of life."""
PARTITIONS = 6


class Unplayed(Exception):
    """The situation could not be set up, so there is nothing to judge."""


def done(results: Mapping[str, Any]) -> None:
    for each in results.values():
        each.result(PATIENCE_S)


class Member:
    """A process that is, or was, a member of the group. name: its client id."""

    def __init__(self, name: str, command: Sequence[str], job: Mapping[str, Any]) -> None:
        self.name, self.job = name, job
        self.assigned: list[Partition] | None = None
        self.fatal = ""
        self.said: list[dict[str, Any]] = []
        self._closed = threading.Event()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._process.pid
        self._errors: list[bytes] = []
        self._frozen = False
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._hear_errors, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if "assigned" in told:
                self.assigned = [(topic, partition) for topic, partition in told["assigned"]]
            if "fatal" in told:
                self.fatal = told["fatal"]
            if told.get("closed"):
                self._closed.set()
            self.said.append(told)

    def _hear_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-30:], line]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def error_tail(self) -> str:
        return b"".join(self._errors).decode(errors="replace")[-800:]

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def stop_polling(self) -> None:
        self.tell("stop-polling")

    def resume(self) -> None:
        self.tell("resume")

    def subscribe(self, *topics: str) -> None:
        self.tell(f"subscribe {','.join(topics)}")

    def close(self) -> None:
        """Call its client's close(), then end the process."""
        self.tell("close")
        if not self._closed.wait(PATIENCE_S):
            raise Unplayed(f"{self.name} did not close: {self.error_tail()}")
        self.kill()

    def exit(self) -> None:
        """End the program without close()."""
        self.tell("exit")
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        if self.alive:
            self._process.kill()
        self._process.wait(PATIENCE_S)

    def ports(self) -> set[int]:
        """Local ports of its connections."""
        return {each.laddr.port for each in psutil.Process(self.pid).net_connections("tcp") if each.laddr}

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class Scene:
    """The actions of a situation's script. Waits raise `Unplayed` when they time out."""

    def __init__(self, client: Client, node: Backend, group: str) -> None:
        self.client, self.node, self.group = client, node, group
        self.members: dict[str, Member] = {}
        self.everybody: list[Member] = []
        self.watched = isinstance(node, KafkaItself)
        """Nobody of Muster's coordinates the group."""
        self.topic_ids: dict[bytes, str] = {}
        self.reports, self._admin = self._reports_of(node)
        self.upstream = AdminClient({"bootstrap.servers": node.topics_at}) if node.topics_at else None
        self.topics: dict[str, int] = {}
        self.topic = self.make_topic("orders")
        self.ids: dict[str, str] = {}
        self._cut: list[Member] = []
        self.since = 0
        self._before: dict[Partition, str] = {}

    def _reports_of(self, node: Backend) -> tuple[Reports, Admin | None]:
        if isinstance(node, KafkaItself):
            return WatchedReports(node, self.topic_ids, SESSION_MS), None
        admin = Admin(bootstrap_servers=node.address)
        return NodeReports(admin, self.muster), admin

    @property
    def admin(self) -> Admin:
        assert self._admin is not None, "no node of Muster's is there"
        return self._admin

    # -- topics -------------------------------------------------------------------------------------------------------

    def name_of(self, topic: str) -> str:
        return f"{self.group}.{topic}"

    def make_topic(self, topic: str, partitions: int = PARTITIONS) -> str:
        name = self.name_of(topic)
        if self.upstream is None:
            self.admin.create_topic(name, partitions)
        else:
            done(self.upstream.create_topics([NewTopic(name, partitions, 1)]))
        self.topics[name] = partitions
        self._feed()
        if isinstance(self.node, KafkaItself):
            self.topic_ids |= self.node.topic_ids(name)
        return name

    def grow_topic(self, name: str, partitions: int) -> None:
        if self.upstream is None:
            self.admin.create_partitions(name, partitions)
        else:
            done(self.upstream.create_partitions([NewPartitions(name, partitions)]))
        self.topics[name] = partitions
        self._feed()

    def _feed(self) -> None:
        if isinstance(self.node, KafkaItself):
            self.node.feeder.feed(self.topics)

    def delete_topic(self, name: str) -> None:
        if isinstance(self.node, KafkaItself):
            self.node.feeder.starve(name)
        if self.upstream is None:
            self.admin.delete_topics([name])
        else:
            done(self.upstream.delete_topics([name]))
        del self.topics[name]

    # -- members ------------------------------------------------------------------------------------------------------

    def begin(self, name: str, **more: Any) -> Member:
        """Start a member without waiting. more: fields of its job that differ from the defaults."""
        job = {
            "library": self.client.library,
            "protocol": self.client.protocol,
            "address": self.node.kafka_address,
            "grpc": self.node.address,
            "group": self.group,
            "name": name,
            "topics": [self.topic],
            "assignors": [self.client.assignor],
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "poll_ms": LONG_POLL_MS,
            "metadata_ms": METADATA_MS,
            "commit_ms": COMMIT_MS if self.watched else 0,
            **more,
        }
        member = Member(name, self.client.command(job), job)
        self.members[name] = member
        self.everybody.append(member)
        return member

    def start(self, *names: str, **more: Any) -> list[Member]:
        """Start members one after another; each owns partitions before the next one starts."""
        started = []
        for name in names:
            started.append(self.begin(name, **more))
            self.until_shared()
        return started

    def again(self, member: Member, **more: Any) -> Member:
        """Start a member again that has ended."""
        job = {key: value for key, value in member.job.items() if key not in ("address", "grpc", "name")}
        return self.begin(member.name, **{**job, **more})

    # -- the network --------------------------------------------------------------------------------------------------

    def cut(self, member: Member) -> None:
        """Its connections stay open but carry nothing; the same for new ones."""
        self._cut.append(member)
        self._keep_cut()

    def _keep_cut(self) -> None:
        for member in self._cut:
            for proxy in self.node.proxies:
                proxy.cut(member.ports())

    def reset(self, member: Member) -> None:
        """Break its connections."""
        for proxy in self.node.proxies:
            proxy.reset(member.ports())

    # -- waiting ------------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise Unplayed(f"not in time: {what}. {self.seen()}")
            time.sleep(AGAIN_S)
            self._keep_cut()

    def until_shared(
        self, *members: Member, topics: Sequence[str] = (), more: bool = False, seconds: float = PATIENCE_S
    ) -> None:
        """Wait until these members (default: all that run) own each partition of these topics (default: the first)
        exactly once, and the node describes the group as stable. more: also partitions that there are not (any more).
        """
        sharing = members or tuple(each for each in self.members.values() if each.alive)
        wanted = {(name, number) for name in topics or (self.topic,) for number in range(self.topics.get(name, 0))}

        def shared() -> bool:
            if ended := [each for each in sharing if not each.alive]:
                raise Unplayed(f"{ended[0].name} has ended: {ended[0].fatal} {ended[0].error_tail()}")
            owned = [place for each in sharing for place in each.assigned or () if place in wanted or not more]
            idle = any(not each.assigned for each in sharing) and len(wanted) >= len(sharing)
            return len(owned) == len(wanted) and set(owned) == wanted and not idle and self.at_rest(len(sharing))

        names = ", ".join(each.name for each in sharing)
        self.until(shared, f"{names} share {', '.join(topics or (self.topic,))}", seconds)

    def hold(self, seconds: float) -> None:
        """Let time pass, where the situation is that something lasts."""
        time.sleep(seconds)

    def at_rest(self, members: int) -> bool:
        found = self.reports.describe(self.group)
        self.ids |= found.ids
        return found.stable and len(found.ids) == members

    def ids_now(self) -> dict[str, str]:
        """Client ids by member id, as the coordinator describes the group now."""
        found = self.reports.describe(self.group).ids
        self.ids |= found
        return found

    def ids_of(self, name: str) -> set[str]:
        """The ids under which this client id has been a member so far."""
        self.ids_now()
        return {member_id for member_id, client_id in self.ids.items() if client_id == name}

    def members_of_group(self) -> list[str]:
        """Client ids of the members, as the node describes the group now."""
        return sorted(self.ids_now().values())

    def until_gone(self, *names: str) -> None:
        """Wait until none of these are members."""
        self.until(lambda: not set(names) & set(self.members_of_group()), f"{', '.join(names)} are out of the group")

    def until_members(self, *names: str) -> None:
        self.until(lambda: self.members_of_group() == sorted(names), f"the members are {', '.join(names)}")

    def seen(self) -> str:
        by_name = {each.name: (each.assigned, each.fatal, each.error_tail()) for each in self.members.values()}
        return f"{by_name} {self.reports.describe(self.group)}"

    # -- reports -----------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Judge what is reported from here on."""
        if isinstance(self.node, KafkaItself):
            self.hold(SIGNS_S)
            self._await_commits(self.node)
        self._before = self.owners()
        self.since = self.reports.mark(self.group)

    def _await_commits(self, kafka: KafkaItself) -> None:
        """Wait until each member that commits has committed again: else it would have shown no sign of life."""
        committing = [each for each in self.members.values() if each.alive and each.job["commit_ms"] > 0]
        before = kafka.positions(self.group)
        deadline = time.monotonic() + PATIENCE_S / 3
        while time.monotonic() < deadline:
            now = kafka.positions(self.group)
            if all(any(now.get(at) != before.get(at) for at in each.assigned or ()) for each in committing):
                return
            time.sleep(AGAIN_S)

    def owners(self) -> dict[Partition, str]:
        return {place: each.name for each in self.members.values() if each.alive for place in each.assigned or ()}

    def muster(self, *words: str) -> str:
        """Run a command and return its standard output."""
        command = [MUSTER, *words, "--bootstrap", self.node.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise Unplayed(f"muster {' '.join(words)}: {done.stderr[-800:]}")
        return done.stdout

    def recorded(self) -> list[dict[str, Any]]:
        """The ledger's entries since the mark, oldest first; empty if there is no such group."""
        return self.reports.recorded(self.group, self.since)

    def reported(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The same entries, and the incidents that they belong to."""
        return self.reports.reported(self.group, self.since)

    def text_since_mark(self) -> str:
        """The entries as text."""
        return self.reports.text(self.group, self.since)

    def observation(self) -> Observation:
        return Observation(
            names=frozenset(each.name for each in self.everybody),
            ids=dict(self.ids),
            before=self._before,
            after=self.owners(),
            cooperative=self.client.mode == "cooperative",
        )

    def end(self) -> None:
        for each in self.everybody:
            if each.alive:
                os.killpg(each.pid, signal.SIGKILL)
                each.kill()
        self.reports.close()
        if isinstance(self.node, KafkaItself):
            self.node.feeder.starve(*self.topics)
