"""Topics by regular expression (KIP-848 v1). RE2 syntax: matching takes linear time, always."""

from muster.coordinator.core.consumer import target
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import RegexDeleted, RegexStored
from muster.coordinator.core.model.core_events import RegexResolved
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.patterns import MAX_REGEX_CHARS, compile_pattern
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import CoordinatorError, ErrorCode

INTERNAL = "__"

REFRESH_FLOOR_MS = 10_000
"""A group's expressions are resolved at most this often."""


def check_regex(regex: str) -> None:
    if len(regex) > MAX_REGEX_CHARS:
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression has {len(regex)} characters; at most {MAX_REGEX_CHARS} are accepted",
        )
    try:
        compile_pattern(regex)
    except ValueError as error:
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{regex!r} is no regular expression in RE2 syntax: {error}",
        ) from error


def match_topics(request: ResolveRegex) -> tuple[str, ...]:
    """The topics whose whole name matches, in order. Raises ValueError. The work that is done off the loop."""
    pattern = compile_pattern(request.regex)
    return tuple(topic for topic in sorted(request.topics) if pattern.fullmatch(topic))


def request_resolution(group: ConsumerGroup, regex: str | None, step: Step) -> None:
    """A member that reads by pattern was heard: ask for all patterns of the group if its own is new, topics were
    created since, or the answers are old."""
    progress = group.progress
    if not regex or progress.resolving:
        return
    refreshed_ms = progress.regex_refreshed_ms
    if refreshed_ms is not None and step.now_ms - refreshed_ms <= REFRESH_FLOOR_MS:
        return
    if regex in group.regexes and not any(is_resolution_due(group, known, step) for known in group.regexes.values()):
        return
    progress.regex_refreshed_ms = step.now_ms
    for used in sorted({member.topic_regex for member in group.members.values() if member.topic_regex}):
        progress.resolving[used] = step.tick()
        step.out.regexes.append(ResolveRegex(group.id, used, candidate_topics(step), progress.resolving[used]))


def candidate_topics(step: Step) -> tuple[str, ...]:
    """What a pattern may match: a node's own topics, such as __consumer_offsets, are only read by name."""
    return tuple(topic for topic in step.state.topic_ids if not topic.startswith(INTERNAL))


def is_resolution_due(group: ConsumerGroup, known: RegexStored, step: Step) -> bool:
    """What an earlier life of the shard found out says nothing of topics made since: it counted by itself."""
    if group.progress.resolved.get(known.regex, 0) <= step.state.topics_version:
        return True
    return step.now_ms - known.timestamp_ms > step.limits.consumer_regex_refresh_ms


def take_resolved(group: ConsumerGroup, event: RegexResolved, step: Step) -> None:
    """Keep what the expression stands for; a change is a change of every subscription that uses it."""
    if group.progress.resolving.get(event.regex) != event.version:
        return  # an earlier group of this id, or an earlier wish, asked for it
    del group.progress.resolving[event.regex]
    users = group.regex_users(event.regex)
    if event.error or not users:
        return
    known = group.regexes.get(event.regex)
    group.progress.resolved[event.regex] = event.version
    step.keep(RegexStored(group.id, event.regex, event.topics, event.version, step.now_ms))
    if known is not None and known.topics == event.topics:
        return
    what = f"{len(event.topics)} topics" if len(event.topics) != 1 else "1 topic"
    trigger = RebalanceTrigger(
        Cause.SUBSCRIPTION_CHANGED,
        f"the regular expression {event.regex!r} of {len(users)} members now stands for {what}",
    )
    target.request_target(group, trigger, step)


def forget_unused_regex(group: ConsumerGroup, regex: str | None, step: Step) -> None:
    """The last member that used the expression is gone, or uses another one."""
    if regex and regex in group.regexes and not group.regex_users(regex):
        group.progress.resolved.pop(regex, None)
        step.keep(RegexDeleted(group.id, regex))
