"""What a central group reads: names, and regular expressions that new topics may match."""

from muster.coordinator.core.central import rebalance
from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.consumer.regex import candidates
from muster.coordinator.core.effects import ResolveRegex
from muster.coordinator.core.events import RegexResolved
from muster.coordinator.core.ledger import Trigger, by_member
from muster.coordinator.core.rights import RightsAnew, anew, change
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import Cause


def want_resolved(group: CentralGroup, regex: str, step: Step, *, again: bool = False) -> None:
    """Have the topics found that the expression stands for. Until they are, nothing is moved."""
    progress = group.progress
    if not regex or regex in progress.resolving or (regex in progress.regexes and not again):
        return
    progress.resolving[regex] = step.tick()
    step.out.regexes.append(ResolveRegex(group.id, regex, candidates(step), progress.resolving[regex]))


def resolved(group: CentralGroup, event: RegexResolved, step: Step) -> None:
    """A change is a change of every subscription that uses the expression."""
    progress = group.progress
    if progress.resolving.get(event.regex) != event.version:
        return
    del progress.resolving[event.regex]
    if event.version < step.state.topics_version:
        want_resolved(group, event.regex, step, again=True)  # topics were created meanwhile
        return
    before = progress.regexes.get(event.regex)
    if not event.error:
        progress.regexes[event.regex] = event.topics
    elif before is None:
        progress.regexes[event.regex] = ()
    if before is not None and before != progress.regexes[event.regex]:
        what = f"{len(event.topics)} topics" if len(event.topics) != 1 else "1 topic"
        cause = Trigger(Cause.SUBSCRIPTION_CHANGED, f"the regular expression {event.regex!r} now stands for {what}")
        rebalance.call_for(group, cause, step)
    else:
        rebalance.go_on(group, step)


def forget_unused(group: CentralGroup, regex: str) -> None:
    if regex and not any(member.regex == regex for member in group.members.values()):
        group.progress.regexes.pop(regex, None)
        group.progress.resolving.pop(regex, None)


def changed(group: CentralGroup, step: Step) -> None:
    """Topics were created, grew or went: look at patterns again, and at what the group reads."""
    for regex in sorted({member.regex for member in group.members.values() if member.regex}):
        want_resolved(group, regex, step, again=True)
    if group.progress.counts is not None and group.progress.counts != counts_of(group, step):
        trigger = Trigger(Cause.PARTITIONS_CHANGED, "the topics that the group reads have changed")
        rebalance.call_for(group, trigger, step)


def rights_changed(group: CentralGroup, event: RightsAnew, step: Step) -> None:
    """Some may read others than before."""
    triggers = []
    for member in group.members.values():
        was, member.rights = group.topics_of(member), anew(member.rights, event)
        now = group.topics_of(member)
        if was != now:
            triggers.append(by_member(Cause.SUBSCRIPTION_CHANGED, member, change(was, now)))
    if triggers:
        rebalance.call_for(group, triggers[0], step)


def counts_of(group: CentralGroup, step: Step) -> dict[str, int]:
    wanted = frozenset().union(*(group.named_by(member) for member in group.members.values()))
    return {topic: count for topic, count in step.state.partitions.items() if topic in wanted}
