"""Which property means something under which `group.protocol`, and why not elsewhere (as Kafka refuses them)."""

from collections.abc import Collection, Mapping

from muster.coordinator.client.zookeeper_config import ZNODE_NAME, ZookeeperProperties, names_a_znode


def dotted(name: str) -> str:
    return name.replace("_", ".")


ASSIGNED_THERE = "the coordinator assigns; group.remote.assignor asks for an assignor of its own"
TIMED_THERE = "the coordinator's group.consumer settings decide it"
ASSIGNED_ALONE = "every consumer assigns for itself, by range or roundrobin"
ENDS_THERE = "zookeeper.session.timeout.ms decides when a consumer is given up"
NO_COORDINATOR = "no coordinator has a hand in such a group"

NOT_WITH: Mapping[str, Mapping[str, str]] = {
    "consumer": {
        "partition_assignment_strategy": ASSIGNED_THERE,
        "partition_assignment_options": ASSIGNED_THERE,
        "partition_assignment_deadline_ms": ASSIGNED_THERE,
        "partition_assignment_isolation": ASSIGNED_THERE,
        "session_timeout_ms": TIMED_THERE,
        "heartbeat_interval_ms": TIMED_THERE,
    },
    "central": {
        "partition_assignment_options": ASSIGNED_THERE,
        "partition_assignment_deadline_ms": ASSIGNED_THERE,
        "partition_assignment_isolation": ASSIGNED_THERE,
        "heartbeat_interval_ms": "the coordinator pings, every third of session.timeout.ms",
        "auto_commit_interval_ms": "the coordinator commits, with every ping",
        "group_instance_id": "a lost stream is waited for until the session is over, whoever the member is",
        "group_membership": "the stream is the membership",
    },
    "zookeeper": {
        "partition_assignment_options": ASSIGNED_ALONE,
        "partition_assignment_deadline_ms": ASSIGNED_ALONE,
        "partition_assignment_isolation": ASSIGNED_ALONE,
        "session_timeout_ms": ENDS_THERE,
        "heartbeat_interval_ms": ENDS_THERE,
        "group_instance_id": "an ephemeral node cannot outlive its process; consumer.id gives it a name",
        "group_remote_assignor": NO_COORDINATOR,
        "group_membership": NO_COORDINATOR,
    },
}
ZOOKEEPER_ONLY = frozenset(ZookeeperProperties.model_fields)
STRATEGIES = ("range", "roundrobin")


def check_protocol(protocol: str, given: Collection[str]) -> None:
    """Raise ValueError for the first property, by name, that means nothing under this protocol."""
    for name in sorted(set(NOT_WITH.get(protocol, ())) & set(given)):
        raise ValueError(f"{dotted(name)} cannot be set with group.protocol={protocol}: {NOT_WITH[protocol][name]}")
    if protocol != "zookeeper":
        for name in sorted(ZOOKEEPER_ONLY & set(given)):
            raise ValueError(f"{dotted(name)} belongs to group.protocol=zookeeper, not {protocol}; leave it out")


def check_zookeeper(connect: str | None, group_id: str | None, strategy: str) -> None:
    """What that protocol cannot do without. Raises ValueError."""
    if connect is None:
        raise ValueError("group.protocol=zookeeper needs zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT")
    if group_id is None or not names_a_znode(group_id):
        raise ValueError(
            f"group.protocol=zookeeper needs a group.id that can be the name of a znode, {ZNODE_NAME}; got {group_id!r}"
        )
    if strategy not in STRATEGIES:
        raise ValueError(
            f"partition.assignment.strategy={strategy}: the ZooKeeper era knows {' and '.join(STRATEGIES)}; choose one"
        )
