"""The generations of the protocol: one entry each. A new one is compared by adding its entry here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.assignors.api import Snapshot
from muster.assignors.data.consumer_protocol import encode_assignment, member_from_subscription
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.central_member import CentralMemberMachine
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.consumer_member import ConsumerMemberMachine, RequestedSubscription
from muster.client.members.delayed_rebalance import DelayedLeader, DelayedSubscriber
from muster.client.members.member_types import LeavePolicy, MemberSettings
from muster.client.members.subscription import Subscriber
from muster.client.members.zookeeper_assignment import ZookeeperMemberSettings, build_registration
from muster.client.members.zookeeper_member import ZookeeperMemberMachine
from muster.workshop.lab.central_worker import CentralWorker
from muster.workshop.lab.coordinated_workers import (
    CoordinatedWorker,
    PlanningWorker,
    PushedClassicWorker,
    PushedConsumerWorker,
)
from muster.workshop.lab.simulated_node import GROUP, SimulatedNode, VirtualClock
from muster.workshop.lab.simulated_worker import RunAccount, SimulatedWorker, SteadyLoad
from muster.workshop.lab.zookeeper_worker import ZookeeperRebalances, ZookeeperWorker

DELAY_MS = 60_000
"""How long a delayed group waits for a lost worker."""
SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 10_000, 3_000, 60_000


@dataclass(frozen=True, slots=True)
class LabRun:
    """What all workers of a run share. `topics` are the names that they subscribe to."""

    clock: VirtualClock
    node: SimulatedNode
    account: RunAccount
    labour: SteadyLoad
    topics: tuple[str, ...]
    era: ZookeeperRebalances
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
class ProtocolGeneration:
    """How workers of this generation are made, and how they go when they are restarted."""

    name: str
    story: str
    make: Callable[[LabRun, str, int], SimulatedWorker]
    """(lab, the worker's place, which incarnation)"""
    leaving: LeavePolicy = LeavePolicy.LEAVE
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


def classic(
    assignor: str, *, static: bool = False, told: bool = False
) -> Callable[[LabRun, str, int], CoordinatedWorker]:
    kind = PushedClassicWorker if told else PlanningWorker

    def make(lab: LabRun, name: str, incarnation: int) -> CoordinatedWorker:
        machine = ClassicMemberMachine(settings(name, static=static), Subscriber(lab.topics, [resolve(assignor)]))
        worker = kind(lab.clock, lab.node, lab.account, lab.labour, name, machine)
        worker.planner = lambda asked, now_ms: plan_as_leader(lab.node, asked)
        return worker

    return make


def delayed(lab: LabRun, name: str, incarnation: int) -> CoordinatedWorker:
    subscriber = DelayedSubscriber(lab.topics, [resolve("cooperative-sticky")])
    worker = PlanningWorker(
        lab.clock, lab.node, lab.account, lab.labour, name, ClassicMemberMachine(settings(name), subscriber)
    )
    worker.planner = DelayedLeader(DELAY_MS).plan
    return worker


def consumer(kind: type[CoordinatedWorker]) -> Callable[[LabRun, str, int], CoordinatedWorker]:
    def make(lab: LabRun, name: str, incarnation: int) -> CoordinatedWorker:
        machine = ConsumerMemberMachine(settings(name), f"{name}-{incarnation}", RequestedSubscription(lab.topics))
        return kind(lab.clock, lab.node, lab.account, lab.labour, name, machine)

    return make


def zookeeper(lab: LabRun, name: str, incarnation: int) -> SimulatedWorker:
    machine = ZookeeperMemberMachine(
        ZookeeperMemberSettings(GROUP, session_timeout_ms=SESSION_MS), build_registration(lab.topics, "", False, 1)
    )
    return ZookeeperWorker(lab.clock, lab.era, lab.account, lab.labour, f"{name}-{incarnation:03}", machine)


def central(lab: LabRun, name: str, incarnation: int) -> SimulatedWorker:
    machine = CentralMemberMachine(
        settings(name), f"{name}-{incarnation}", RequestedSubscription(lab.topics, "", "range")
    )
    return CentralWorker(lab.clock, lab.node, lab.account, lab.labour, name, machine)


def plan_as_leader(node: SimulatedNode, asked: act.MakePlan) -> ev.PlanMade:
    """The real assignor, on what the members said."""
    members = [
        member_from_subscription(m.member_id, m.group_instance_id, m.metadata, asked.protocol_name)
        for m in asked.members
    ]
    snapshot = Snapshot(topics=node.topics, members=members, assignor=asked.protocol_name)
    plan = run(resolve(asked.protocol_name), snapshot).to_dict()
    shares = tuple((member, encode_assignment(share)) for member, share in sorted(plan.items()))
    text = snapshot.to_json().encode()
    return ev.PlanMade(asked.generation, shares, text, node.topics, question=asked.question)


POLLED, PUSHED = {"group.membership": "poll"}, {"group.membership": "push"}
CONSUMER = {"group.protocol": "consumer"}


def strategy(name: str) -> dict[str, str]:
    return {"partition.assignment.strategy": name}


GENERATIONS = (
    ProtocolGeneration(
        "zookeeper",
        "no coordinator: everybody watches, computes and claims for itself",
        zookeeper,
        properties={"group.protocol": "zookeeper"},
        real=False,
    ),
    ProtocolGeneration(
        "central",
        "the coordinator decides, and stops and starts everybody",
        central,
        properties={"group.protocol": "central"} | strategy("range"),
        real=False,
    ),
    ProtocolGeneration(
        "eager",
        "everybody lets go of everything, every time",
        classic("range"),
        properties=POLLED | strategy("range"),
    ),
    ProtocolGeneration(
        "eager-sticky",
        "the same, but most come back to where they were",
        classic("sticky"),
        properties=POLLED | strategy("sticky"),
    ),
    ProtocolGeneration(
        "static",
        "eager; who restarts within its session is not missed",
        classic("range", static=True),
        LeavePolicy.REMAIN,
        properties=POLLED | strategy("range"),
    ),
    ProtocolGeneration(
        "cooperative",
        "only what moves is let go of, in two rounds",
        classic("cooperative-sticky"),
        properties=POLLED | strategy("cooperative-sticky"),
    ),
    ProtocolGeneration(
        "delayed",
        "cooperative; what a lost worker had waits for it",
        delayed,
        properties=POLLED | strategy("cooperative-sticky"),
        resources=True,
    ),
    ProtocolGeneration(
        "pushed",
        "cooperative, and called back by a stream",
        classic("cooperative-sticky", told=True),
        properties=PUSHED | strategy("cooperative-sticky"),
    ),
    ProtocolGeneration(
        "kip848", "the coordinator decides; members poll it", consumer(CoordinatedWorker), properties=POLLED | CONSUMER
    ),
    ProtocolGeneration(
        "kip848-pushed",
        "the coordinator decides, and says so at once",
        consumer(PushedConsumerWorker),
        properties=PUSHED | CONSUMER,
    ),
    ProtocolGeneration(
        "kip848-deploy",
        "polled; before everybody is restarted, an operator says so",
        consumer(CoordinatedWorker),
        properties=POLLED | CONSUMER,
        deploys=True,
        real=False,
    ),
)
BY_NAME = {generation.name: generation for generation in GENERATIONS}
