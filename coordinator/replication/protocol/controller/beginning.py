"""How a reign begins: what a new controller knows already, as a node of its cluster (CL-Z7)."""

from muster.coordinator.replication.protocol.controller.book import state_of_view
from muster.coordinator.replication.protocol.controller.events import ControllerElected
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.facts import NO_EPOCH, OFFSETS, TopicPartition, halves_of, unit_of
from muster.coordinator.replication.protocol.image import ClusterImage, PartitionView


def is_image_complete(event: ControllerElected) -> bool:
    """CL-Z7: whether this node's image has the last write, and so the versions of all states. An image may be further
    than the last write, by nodes that came and went; directories have to be known, or it is not all."""
    image = event.image
    if image is None or image.known.epoch != event.version.known.epoch:
        return False
    if image.known.epoch == NO_EPOCH or image.known.sequence < event.version.known.sequence:
        return False
    return all(view.directories is not None for _, view in image.partitions())


def keep_deleted_topics(reign: ControllerTerm, image: ClusterImage) -> None:
    """What ZooKeeper does not tell: topics that were deleted."""
    reign.book.teller.deleted.update(image.deleted)


def must_withhold_settings(reign: ControllerTerm) -> bool:
    """Whether settings may be told only when all has been looked at: there are eligible replicas that these settings
    allow no more, and who hears of them commits without those (CL-C5)."""
    book = reign.book
    for unit, state in book.states.items():
        assignment = book.assignment(unit)
        if state.elr and assignment is not None:
            minimum = book.standing(unit, assignment, state).minimum
            if len(state.isr) >= minimum:
                return True
    return False


def adopt_states(reign: ControllerTerm, image: ClusterImage) -> None:
    """CL-Z7: the states as this node was told them, instead of reading all."""
    for place, told in image.partitions():
        if unit_of(place) == place and reign.book.assignment(place) is not None:
            _adopt_state(reign, place, told, image)


def _adopt_state(reign: ControllerTerm, unit: TopicPartition, told: PartitionView, image: ClusterImage) -> None:
    book = reign.book
    book.put_state(unit, state_of_view(told, image.known.epoch))
    if unit.topic == OFFSETS and (other := image.partition(halves_of(unit)[1])) is not None:
        book.second[unit] = other.partition_epoch
