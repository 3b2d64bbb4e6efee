"""What a central group reads: names, and regular expressions that new topics may match."""

from muster.coordinator.core.central import rebalance
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.consumer.regex import candidate_topics
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import RegexResolved
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.rights import RightsAnew, describe_rights_change, refreshed_rights
from muster.coordinator.core.model.types import Cause


def request_resolution(group: CentralGroup, regex: str, step: Step, *, again: bool = False) -> None:
    """Have the topics found that the expression stands for. Until they are, nothing is moved."""
    progress = group.progress
    if not regex or regex in progress.resolving or (regex in progress.regexes and not again):
        return
    progress.resolving[regex] = step.tick()
    step.out.regexes.append(ResolveRegex(group.id, regex, candidate_topics(step), progress.resolving[regex]))


def take_resolved(group: CentralGroup, event: RegexResolved, step: Step) -> None:
    """A change is a change of every subscription that uses the expression."""
    progress = group.progress
    if progress.resolving.get(event.regex) != event.version:
        return
    del progress.resolving[event.regex]
    if event.version < step.state.topics_version:
        request_resolution(group, event.regex, step, again=True)  # topics were created meanwhile
        return
    before = progress.regexes.get(event.regex)
    if not event.error:
        progress.regexes[event.regex] = event.topics
    elif before is None:
        progress.regexes[event.regex] = ()
    if before is not None and before != progress.regexes[event.regex]:
        what = f"{len(event.topics)} topics" if len(event.topics) != 1 else "1 topic"
        cause = RebalanceTrigger(
            Cause.SUBSCRIPTION_CHANGED, f"the regular expression {event.regex!r} now stands for {what}"
        )
        rebalance.request_rebalance(group, cause, step)
    else:
        rebalance.advance_task(group, step)


def forget_unused_regex(group: CentralGroup, regex: str) -> None:
    if regex and not any(member.regex == regex for member in group.members.values()):
        group.progress.regexes.pop(regex, None)
        group.progress.resolving.pop(regex, None)


def take_topic_changes(group: CentralGroup, step: Step) -> None:
    """Topics were created, grew or went: look at patterns again, and at what the group reads."""
    for regex in sorted({member.regex for member in group.members.values() if member.regex}):
        request_resolution(group, regex, step, again=True)
    if group.progress.counts is not None and group.progress.counts != partition_counts(group, step):
        trigger = RebalanceTrigger(Cause.PARTITIONS_CHANGED, "the topics that the group reads have changed")
        rebalance.request_rebalance(group, trigger, step)


def take_rights_change(group: CentralGroup, event: RightsAnew, step: Step) -> None:
    """Some may read others than before."""
    triggers = []
    for member in group.members.values():
        was, member.rights = group.topics_of(member), refreshed_rights(member.rights, event)
        now = group.topics_of(member)
        if was != now:
            triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, describe_rights_change(was, now)))
    if triggers:
        rebalance.request_rebalance(group, triggers[0], step)


def partition_counts(group: CentralGroup, step: Step) -> dict[str, int]:
    wanted = frozenset().union(*(group.named_by(member) for member in group.members.values()))
    return {topic: count for topic, count in step.state.partitions.items() if topic in wanted}
