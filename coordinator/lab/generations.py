"""The generations of the protocol: one entry each. A new one is compared by adding its entry here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.assignors.api import Snapshot
from muster.assignors.data.user_data import encode_assignment, member_from_subscription
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.coordinator.lab.account import Account
from muster.coordinator.lab.central_worker import CentralWorker
from muster.coordinator.lab.clock import Clock
from muster.coordinator.lab.labourer import Labour, Labourer
from muster.coordinator.lab.node import GROUP, LabNode
from muster.coordinator.lab.worker import PlanningWorker, ToldConsumer, ToldWorker, Worker
from muster.coordinator.lab.zookeeper_worker import Era, ZookeeperWorker
from muster.coordinator.member import actions as act
from muster.coordinator.member import events as ev
from muster.coordinator.member.central.machine import CentralMember
from muster.coordinator.member.classic.machine import ClassicMember
from muster.coordinator.member.classic.subscription import Subscriber
from muster.coordinator.member.connect.member import DelayedLeader, DelayedSubscriber
from muster.coordinator.member.consumer.machine import ConsumerMember, Wish
from muster.coordinator.member.types import Leaving, MemberSettings
from muster.coordinator.member.zookeeper.machine import ZookeeperMember
from muster.coordinator.member.zookeeper.types import ZookeeperSettings, registration_of

DELAY_MS = 60_000
"""How long a delayed group waits for a lost worker."""
SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 10_000, 3_000, 60_000


@dataclass(frozen=True, slots=True)
class Lab:
    """What all workers of a run share. `topics` are the names that they subscribe to."""

    clock: Clock
    node: LabNode
    account: Account
    labour: Labour
    topics: tuple[str, ...]
    era: Era
    """The ensemble, which only one generation speaks to."""

    @property
    def rebalances(self) -> int:
        return self.node.rebalances + self.era.rebalances

    @property
    def messages(self) -> int:
        return self.node.messages + self.era.messages

    @property
    def woken(self) -> int:
        """Words to members that nobody had asked for: watches that fired, and what the coordinator pushed."""
        return self.node.pushes + self.era.notifications


@dataclass(frozen=True, slots=True)
class Generation:
    """How workers of this generation are made, and how they go when they are restarted."""

    name: str
    story: str
    make: Callable[[Lab, str, int], Labourer]
    """(lab, the worker's place, which incarnation)"""
    leaving: Leaving = Leaving.LEAVE
    properties: Mapping[str, str] = field(default_factory=dict)
    """What a real client is told, so that it does the same."""
    resources: bool = False
    """It shares named resources: each partition is a resource of its own."""
    deploys: bool = False
    """Before a rolling restart an operator says so (`muster groups deploy`)."""
    real: bool = True
    """Whether `--real` can run it: that has a node and workers that read no log, and no ensemble."""


def settings(name: str, *, static: bool = False) -> MemberSettings:
    return MemberSettings(
        group_id=GROUP,
        client_id=name,
        group_instance_id=name if static else None,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )


def classic(assignor: str, *, static: bool = False, told: bool = False) -> Callable[[Lab, str, int], Worker]:
    kind = ToldWorker if told else PlanningWorker

    def make(lab: Lab, name: str, incarnation: int) -> Worker:
        machine = ClassicMember(settings(name, static=static), Subscriber(lab.topics, [resolve(assignor)]))
        worker = kind(lab.clock, lab.node, lab.account, lab.labour, name, machine)
        worker.planner = lambda asked, now_ms: planned(lab.node, asked)
        return worker

    return make


def delayed(lab: Lab, name: str, incarnation: int) -> Worker:
    subscriber = DelayedSubscriber(lab.topics, [resolve("cooperative-sticky")])
    worker = PlanningWorker(
        lab.clock, lab.node, lab.account, lab.labour, name, ClassicMember(settings(name), subscriber)
    )
    worker.planner = DelayedLeader(DELAY_MS).plan
    return worker


def consumer(kind: type[Worker]) -> Callable[[Lab, str, int], Worker]:
    def make(lab: Lab, name: str, incarnation: int) -> Worker:
        machine = ConsumerMember(settings(name), f"{name}-{incarnation}", Wish(lab.topics))
        return kind(lab.clock, lab.node, lab.account, lab.labour, name, machine)

    return make


def zookeeper(lab: Lab, name: str, incarnation: int) -> Labourer:
    machine = ZookeeperMember(
        ZookeeperSettings(GROUP, session_timeout_ms=SESSION_MS), registration_of(lab.topics, "", False, 1)
    )
    return ZookeeperWorker(lab.clock, lab.era, lab.account, lab.labour, f"{name}-{incarnation:03}", machine)


def central(lab: Lab, name: str, incarnation: int) -> Labourer:
    machine = CentralMember(settings(name), f"{name}-{incarnation}", Wish(lab.topics, "", "range"))
    return CentralWorker(lab.clock, lab.node, lab.account, lab.labour, name, machine)


def planned(node: LabNode, asked: act.Plan) -> ev.Planned:
    """The real assignor, on what the members said."""
    members = [
        member_from_subscription(m.member_id, m.group_instance_id, m.metadata, asked.protocol_name)
        for m in asked.members
    ]
    snapshot = Snapshot(topics=node.topics, members=members, assignor=asked.protocol_name)
    plan = run(resolve(asked.protocol_name), snapshot).to_dict()
    shares = tuple((member, encode_assignment(share)) for member, share in sorted(plan.items()))
    text = snapshot.to_json().encode()
    return ev.Planned(asked.generation, shares, text, node.topics, question=asked.question)


POLLED, PUSHED = {"group.membership": "poll"}, {"group.membership": "push"}
CONSUMER = {"group.protocol": "consumer"}


def strategy(name: str) -> dict[str, str]:
    return {"partition.assignment.strategy": name}


GENERATIONS = (
    Generation(
        "zookeeper",
        "no coordinator: everybody watches, computes and claims for itself",
        zookeeper,
        properties={"group.protocol": "zookeeper"},
        real=False,
    ),
    Generation(
        "central",
        "the coordinator decides, and stops and starts everybody",
        central,
        properties={"group.protocol": "central"} | strategy("range"),
        real=False,
    ),
    Generation(
        "eager",
        "everybody lets go of everything, every time",
        classic("range"),
        properties=POLLED | strategy("range"),
    ),
    Generation(
        "eager-sticky",
        "the same, but most come back to where they were",
        classic("sticky"),
        properties=POLLED | strategy("sticky"),
    ),
    Generation(
        "static",
        "eager; who restarts within its session is not missed",
        classic("range", static=True),
        Leaving.REMAIN,
        properties=POLLED | strategy("range"),
    ),
    Generation(
        "cooperative",
        "only what moves is let go of, in two rounds",
        classic("cooperative-sticky"),
        properties=POLLED | strategy("cooperative-sticky"),
    ),
    Generation(
        "delayed",
        "cooperative; what a lost worker had waits for it",
        delayed,
        properties=POLLED | strategy("cooperative-sticky"),
        resources=True,
    ),
    Generation(
        "pushed",
        "cooperative, and called back by a stream",
        classic("cooperative-sticky", told=True),
        properties=PUSHED | strategy("cooperative-sticky"),
    ),
    Generation("kip848", "the coordinator decides; members poll it", consumer(Worker), properties=POLLED | CONSUMER),
    Generation(
        "kip848-pushed",
        "the coordinator decides, and says so at once",
        consumer(ToldConsumer),
        properties=PUSHED | CONSUMER,
    ),
    Generation(
        "kip848-deploy",
        "polled; before everybody is restarted, an operator says so",
        consumer(Worker),
        properties=POLLED | CONSUMER,
        deploys=True,
        real=False,
    ),
)
BY_NAME = {generation.name: generation for generation in GENERATIONS}
