"""Runs stories of one consumer of the ZooKeeper era against its machine: what it is told, and what it asks for.

    consumer [topics=t,u | white=REGEX | black=REGEX] [strategy=roundrobin] [retries=4] [backoff=2000]
    connected / suspended / lost              the session
    registered c1                             answers, each to the one request that waits
    read c1 c2/u+v*2 | t=4 u=2 | 1            members (with topics and streams), partitions, brokers
    claimed [t-0=c9-0]                        with whoever held what
    released / withdrawn / failed [for-good] / unreadable WORDS
    told                                      the application's callbacks have run
    watch members / advance 2000ms / subscribe u / poll-expired / polled / refused / close

A trace lists what is asked for, in order, and where the consumer stands if that changed.
"""

import shlex
from collections.abc import Iterator

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.zookeeper_assignment import (
    BLACK_LIST,
    WHITE_LIST,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
)
from muster.client.members.zookeeper_member import ZookeeperMemberMachine
from muster.coordinator.errors import ErrorCode
from tests.support.stories.story import milliseconds, pairs, topic_partition

LINKS = {
    "connected": ZookeeperSession.CONNECTED,
    "suspended": ZookeeperSession.SUSPENDED,
    "lost": ZookeeperSession.LOST,
}
QUIET = "quiet"


class ZookeeperStage:
    """The machine under test, its clock, and the token of the request that waits."""

    def __init__(self) -> None:
        self.machine = ZookeeperMemberMachine(ZookeeperMemberSettings("g"), GroupRegistration({"t": 1}))
        self.now_ms = 0
        self.wake_at_ms: int | None = None
        self.asked = 0
        self.callback = 0
        self.stamp = 0

    def run(self, command: list[str]) -> list[str]:
        words = shlex.split(command[0])
        return list(getattr(self, "do_" + words[0].replace("-", "_"))(words[1:])) or [QUIET]

    def step(self, event: zk.ZookeeperEvent) -> Iterator[str]:
        before = self.machine.state
        for action in self.machine.step(event, self.now_ms):
            if line := self.describe(action):
                yield line
        if self.machine.state is not before:
            yield f"-> {self.machine.state.name}"

    # What it is told

    def do_consumer(self, words: list[str]) -> Iterator[str]:
        options = pairs(words)
        registration = GroupRegistration(dict.fromkeys(options.get("topics", "t").split(","), 1))
        for word, pattern in (("white", WHITE_LIST), ("black", BLACK_LIST)):
            if word in options:
                registration = GroupRegistration({options[word]: 1}, pattern)
        settings = ZookeeperMemberSettings(
            "g",
            options.get("strategy", "range"),
            int(options.get("retries", 4)),
            int(options.get("backoff", 2_000)),
        )
        self.machine = ZookeeperMemberMachine(settings, registration)
        yield from self.step(ev.Start())

    def do_connected(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(zk.SessionChanged(ZookeeperSession.CONNECTED))

    def do_suspended(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(zk.SessionChanged(ZookeeperSession.SUSPENDED))

    def do_lost(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(zk.SessionChanged(ZookeeperSession.LOST))

    def do_registered(self, words: list[str]) -> Iterator[str]:
        yield from self.step(zk.ConsumerRegistered(self.asked, words[0]))

    def do_read(self, words: list[str]) -> Iterator[str]:
        text = " ".join(words)
        members, _, rest = text.partition("|")
        partitions, _, brokers = rest.partition("|")
        view = ConsumerGroupView(
            dict(map(member, members.split())),
            {topic: int(count) for topic, count in pairs(partitions.split()).items()},
            tuple(int(each) for each in brokers.split()),
        )
        yield from self.step(zk.GroupRead(self.asked, view))

    def do_unreadable(self, words: list[str]) -> Iterator[str]:
        yield from self.step(zk.GroupUnreadable(self.asked, " ".join(words)))

    def do_released(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(zk.OwnersReleased(self.asked))

    def do_claimed(self, words: list[str]) -> Iterator[str]:
        self.stamp += 1
        conflicts = {topic_partition(tp): holder for tp, holder in pairs(words).items()}
        yield from self.step(zk.OwnersClaimed(self.asked, conflicts, self.stamp))

    def do_withdrawn(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(zk.ConsumerWithdrawn(self.asked))

    def do_failed(self, words: list[str]) -> Iterator[str]:
        yield from self.step(ev.RequestFailed(self.asked, "for-good" not in words, "no answer"))

    def do_told(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(ev.Revoked(self.callback))

    def do_watch(self, words: list[str]) -> Iterator[str]:
        yield from self.step(zk.WatchFired(words[0]))

    def do_subscribe(self, words: list[str]) -> Iterator[str]:
        yield from self.step(ev.SubscriptionChanged(tuple(words)))

    def do_refused(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", self.machine.generation))

    def do_poll_expired(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(ev.PollExpired())

    def do_polled(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(ev.PollResumed())

    def do_close(self, _words: list[str]) -> Iterator[str]:
        yield from self.step(ev.Close())

    def do_advance(self, words: list[str]) -> Iterator[str]:
        until_ms = self.now_ms + milliseconds(words[0])
        if self.wake_at_ms is not None and self.wake_at_ms <= until_ms:
            self.now_ms, self.wake_at_ms = self.wake_at_ms, None
            yield f"{self.now_ms}ms"
            yield from self.step(ev.TimerExpired())
        self.now_ms = until_ms

    # What it asks for

    def describe(self, action: zk.ZookeeperAction) -> str:
        match action:
            case zk.CreateRegistration():
                self.asked = action.token
                wanted = ",".join(f"{topic}*{streams}" for topic, streams in action.registration.subscription.items())
                return f"register {action.registration.pattern} {wanted}"
            case zk.ReadGroup():
                self.asked = action.token
                return "read afresh" if action.afresh else "read"
            case zk.ReleaseOwners():
                self.asked = action.token
                return f"release {named(action.partitions)}"
            case zk.ClaimOwners():
                self.asked = action.token
                return "claim " + " ".join(
                    f"{topic}-{number}={action.consumer_id}-{stream}"
                    for (topic, number), stream in sorted(action.share.items())
                )
            case zk.WithdrawConsumer():
                self.asked = action.token
                return f"withdraw {named(action.partitions)}".rstrip()
            case zk.RebalanceGivenUp():
                return f"rebalance failed: {action.message}"
            case act.Revoke() | act.Lost():
                self.callback = action.token
                kind = "revoke" if isinstance(action, act.Revoke) else "lost"
                return f"{kind} {named(action.partitions)}: {action.cause.name}: {action.detail}"
            case act.Assign():
                share = named(action.partitions) or "nothing"
                return f"assign {share} generation={action.generation}: {action.cause.name}: {action.detail}"
            case act.Fail():
                return f"fail: {action.message}"
            case act.Closed():
                return "closed"
            case act.Abandon():
                return "abandon"
            case act.WakeMemberAt():
                self.wake_at_ms = action.at_ms
                return f"wake at {action.at_ms}ms"


def member(word: str) -> tuple[str, GroupRegistration]:
    """c1, c1/u+v, c1/t*2 (two streams), c1/~REGEX (white list), c1/!REGEX (black list)."""
    name, _, wanted = word.partition("/")
    if wanted.startswith(("~", "!")):
        return name, GroupRegistration({wanted[1:]: 1}, WHITE_LIST if wanted[0] == "~" else BLACK_LIST)
    topics = [each.partition("*") for each in (wanted or "t").split("+")]
    return name, GroupRegistration({topic: int(streams or 1) for topic, _, streams in topics})


def named(partitions: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in partitions)
