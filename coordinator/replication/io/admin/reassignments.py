"""Reassignments (CL-A8) as a node sees them: what speaks against one that is asked for, and what has come of it.
Pure."""

from typing import NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.image import ClusterImage, PartitionView


class Reassignment(NamedTuple):
    """One that is under way. replicas: those that come and those that go included."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class WantedReplicas(NamedTuple):
    """The replicas that are to be; cancels: they are those before the reassignment that is under way."""

    replicas: tuple[int, ...]
    cancels: bool = False


def wanted_replicas(view: PartitionView, target: tuple[int, ...] | None) -> WantedReplicas:
    """target: None cancels.

    >>> wanted_replicas(PartitionView(1, 0, 0, (1, 2), (), (3, 1, 2), adding=(3,), removing=(2,)), None)
    WantedReplicas(replicas=(1, 2), cancels=True)
    """
    if target is not None:
        return WantedReplicas(target)
    return WantedReplicas(tuple(each for each in view.replicas if each not in view.adding), cancels=True)


def reassignment_refusal(
    image: ClusterImage, view: PartitionView | None, target: tuple[int, ...] | None
) -> ErrorCode | None:
    """Why it cannot be asked for; None if it can."""
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if target is None:
        return None if view.adding or view.removing else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    here = {*(node.id for node in image.live()), *wanted_replicas(view, None).replicas}
    if not target or len(set(target)) != len(target) or not here.issuperset(target):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return None


def reassignment_outcome(image: ClusterImage, view: PartitionView | None, wish: WantedReplicas) -> ErrorCode | None:
    """What has come of it: it is done when it is written who comes and goes. None as long as it is not.

    One that was over before it could be cancelled hears so; nothing goes back.
    """
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if tuple(each for each in view.replicas if each not in view.removing) == wish.replicas and not (
        wish.cancels and view.adding
    ):
        return ErrorCode.NONE
    if wish.cancels:
        return None if view.adding or view.removing else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    # One of them may have gone since it was asked for: the controller refuses it then.
    return reassignment_refusal(image, view, wish.replicas)
