"""What a write that was done makes true; and what is said when there is no reign."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller import events as ev
from muster.coordinator.replication.protocol.controller.effects import (
    AdminResult,
    AlterPartitionResult,
    ElectionNote,
    ResponseBody,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.controller.reign import ControllerTerm
from muster.coordinator.replication.protocol.controller.writes import WriteDraft
from muster.coordinator.replication.protocol.facts import ClusterTopic, TopicPartition, unit_of
from muster.coordinator.replication.protocol.image import ClusterState

NOT_CONTROLLER: dict[type, ResponseBody] = {
    ev.ImagePolled: ClusterState(ErrorCode.NOT_CONTROLLER),
    ev.AlterPartitionRequested: AlterPartitionResult(ErrorCode.NOT_CONTROLLER),
    ev.ShutdownRequested: ShutdownResult(ErrorCode.NOT_CONTROLLER),
    ev.ElectLeadersRequested: AdminResult(ErrorCode.NOT_CONTROLLER),
    ev.ReassignmentRequested: AdminResult(ErrorCode.NOT_CONTROLLER),
}
"""By request."""


def apply_written(reign: ControllerTerm, draft: WriteDraft) -> None:
    """The write is in ZooKeeper: the book says so, all may be told (CL-C1), and those who waited for it hear."""
    book = reign.book
    for topic in draft.topics.values():
        _assigned(reign, topic)
    for unit, state in draft.states.items():
        if book.assignment(unit) is None:
            continue
        if unit in draft.versions:
            book.second[unit] = draft.versions[unit]
        book.put_state(unit, state)
        book.stage(unit)
    book.teller.publish(draft.sequence)
    _note(reign, draft)
    for act in draft.after:
        act()


def _note(reign: ControllerTerm, draft: WriteDraft) -> None:
    for unit, elected in draft.elections.items():
        state = draft.states[unit]
        reign.out.append(
            ElectionNote(
                unit=unit,
                epoch=state.leader_epoch,
                before=elected.before,
                after=state.leader,
                clean=elected.clean,
                cause=state.cause,
                isr=state.isr,
                elr=state.elr,
                decided_ms=elected.decided_ms,
                took_ms=reign.now_ms - elected.since_ms,
            )
        )


def _assigned(reign: ControllerTerm, written: ClusterTopic) -> None:
    """A topic's znode has what was put there, one version up. Settings are not in it: they stay what they are."""
    book = reign.book
    here = book.topics.get(written.name)
    if here is None or here.topic_id != written.topic_id or here.version > written.version:
        return
    topic = ClusterTopic(written.name, written.topic_id, written.partitions, here.configs, written.version + 1)
    book.add_topic(topic)
    for number, (before, after) in enumerate(zip(here.partitions, topic.partitions, strict=True)):
        unit = unit_of(TopicPartition(written.name, number))
        if before != after and unit in book.states:
            book.stage(unit)
