"""Which property means something under which `group.protocol`, and why not elsewhere (as Kafka refuses them)."""

from collections.abc import Collection, Mapping

from muster.client.zookeeper_config import ZNODE_NAME, ZookeeperProperties, is_znode_name


def to_dotted(name: str) -> str:
    return name.replace("_", ".")


COORDINATOR_ASSIGNS = "the coordinator assigns; group.remote.assignor asks for an assignor of its own"
COORDINATOR_TIMES = "the coordinator's group.consumer settings decide it"
MEMBER_ASSIGNS_ALONE = "every consumer assigns for itself, by range or roundrobin"
ZOOKEEPER_ENDS_SESSION = "zookeeper.session.timeout.ms decides when a consumer is given up"
NO_COORDINATOR = "no coordinator has a hand in such a group"

NOT_WITH: Mapping[str, Mapping[str, str]] = {
    "consumer": {
        "partition_assignment_strategy": COORDINATOR_ASSIGNS,
        "partition_assignment_options": COORDINATOR_ASSIGNS,
        "partition_assignment_deadline_ms": COORDINATOR_ASSIGNS,
        "partition_assignment_isolation": COORDINATOR_ASSIGNS,
        "session_timeout_ms": COORDINATOR_TIMES,
        "heartbeat_interval_ms": COORDINATOR_TIMES,
    },
    "central": {
        "partition_assignment_options": COORDINATOR_ASSIGNS,
        "partition_assignment_deadline_ms": COORDINATOR_ASSIGNS,
        "partition_assignment_isolation": COORDINATOR_ASSIGNS,
        "heartbeat_interval_ms": "the coordinator pings, every third of session.timeout.ms",
        "auto_commit_interval_ms": "the coordinator commits, with every ping",
        "group_instance_id": "a lost stream is waited for until the session is over, whoever the member is",
        "group_membership": "the stream is the membership",
    },
    "zookeeper": {
        "partition_assignment_options": MEMBER_ASSIGNS_ALONE,
        "partition_assignment_deadline_ms": MEMBER_ASSIGNS_ALONE,
        "partition_assignment_isolation": MEMBER_ASSIGNS_ALONE,
        "session_timeout_ms": ZOOKEEPER_ENDS_SESSION,
        "heartbeat_interval_ms": ZOOKEEPER_ENDS_SESSION,
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
        raise ValueError(f"{to_dotted(name)} cannot be set with group.protocol={protocol}: {NOT_WITH[protocol][name]}")
    if protocol != "zookeeper":
        for name in sorted(ZOOKEEPER_ONLY & set(given)):
            raise ValueError(f"{to_dotted(name)} belongs to group.protocol=zookeeper, not {protocol}; leave it out")


def check_zookeeper(connect: str | None, group_id: str | None, strategy: str) -> None:
    """What that protocol cannot do without. Raises ValueError."""
    if connect is None:
        raise ValueError("group.protocol=zookeeper needs zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT")
    if group_id is None or not is_znode_name(group_id):
        raise ValueError(
            f"group.protocol=zookeeper needs a group.id that can be the name of a znode, {ZNODE_NAME}; got {group_id!r}"
        )
    if strategy not in STRATEGIES:
        raise ValueError(
            f"partition.assignment.strategy={strategy}: the ZooKeeper era knows {' and '.join(STRATEGIES)}; choose one"
        )
