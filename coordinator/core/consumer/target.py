"""The group epoch, the target assignment that follows it, and the regular expressions of subscriptions.

Topics by regular expression are KIP-848 v1. Expressions use RE2 syntax: matching always takes linear time, and runs
off the event loop.
"""

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

from muster.assignors.api import AssignorError, Snapshot
from muster.assignors.api import Member as AssignorMember
from muster.coordinator.core.consumer import epoch_ledger
from muster.coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.groups.member_causes import changes_since, describe_changes
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.events import Planned, RegexResolved
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import (
    LAST_GENERATION,
    Plan,
    PlanRequest,
    canonical_name,
    lacks_lags,
    largest_share,
    loadable_name,
    too_large,
)
from muster.coordinator.core.model.records import (
    GroupEpochStored,
    RegexDeleted,
    RegexStored,
    Shares,
    TargetEpochStored,
    TargetStored,
    TopicId,
)
from muster.coordinator.core.model.rights import (
    MAX_REGEX_CHARS,
    Rights,
    RightsAnew,
    compile_pattern,
    describe_rights_change,
    readable_topics,
    refreshed_rights,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.settings.assignor_choice import chosen_assignor, chosen_options
from muster.coordinator.core.settings.setting import ASSIGNMENT_INTERVAL
from muster.coordinator.errors import CoordinatorError, ErrorCode

RETRY_FLOOR_MS = 1_000
"""A failed assignor is left alone for so long, even when assignments have no interval."""


def raise_group_epoch(group: ConsumerGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """A new group epoch, and the ledger's entry for it. A target follows when it is due."""
    epoch_ledger.begin_epoch(group, trigger, step)
    raise_epoch(group, step)


def raise_epoch(group: ConsumerGroup, step: Step) -> None:
    step.keep(GroupEpochStored(group.id, next_epoch(group), metadata_hash(group, step)))
    step.announce(group)


def next_epoch(group: ConsumerGroup) -> int:
    """The log has 32 bits for it. Epochs are compared, so the count begins anew only where nobody has one."""
    if group.epoch < LAST_GENERATION:
        return group.epoch + 1
    return LAST_GENERATION if group.members else FIRST_EPOCH


def are_epochs_used_up(group: ConsumerGroup) -> bool:
    """No epoch is left for another target: everybody has to go and to come again (`removal.begin_anew`)."""
    return bool(group.members) and group.epoch >= LAST_GENERATION


def metadata_hash(group: ConsumerGroup, step: Step) -> int:
    """Stands for the ids and partition counts of all topics that the group reads; 0 for none."""
    state = step.state
    topics = group.subscribed_topics() & state.topic_ids.keys() & state.partitions.keys()
    if not topics:
        return 0
    rows = sorted((state.topic_ids[topic], state.partitions[topic]) for topic in topics)
    return crc32(b"".join(topic_id + count.to_bytes(4) for topic_id, count in rows))


def topics_changed(group: ConsumerGroup, step: Step) -> None:
    """A group whose topics grew, went or were made anew needs another target."""
    if group.members and metadata_hash(group, step) != group.metadata_hash:
        changes = changes_since(step.state, group.subscribed_topics(), group.planned_at_ms or step.now_ms)
        detail = describe_changes(changes) if changes else "the topics that the group reads have changed"
        request_target(group, RebalanceTrigger(Cause.PARTITIONS_CHANGED, detail, topics=changes), step)


def request_target(group: ConsumerGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Something changed what the target depends on: a new epoch, and a new target as soon as it is due."""
    raise_group_epoch(group, trigger, step)
    compute_target(group, step)


def compute_target(group: ConsumerGroup, step: Step) -> None:
    """Make the target of the newest epoch if it is time; one computation at a time."""
    progress, extensions = group.progress, step.state.extensions
    if are_epochs_used_up(group):
        step.arm(group.assign_timer, 0)
        return
    calm = extensions.protects_members(group.id, step.state)
    if not group.members or group.epoch <= group.target_epoch or (progress.planning and not calm):
        return
    due_ms = progress.fenced_until_ms
    if not calm:
        due_ms = max(due_ms, progress.retry_at_ms, next_due_ms(group, step))
    if step.now_ms < due_ms:
        step.arm(group.assign_timer, due_ms - step.now_ms)
        return
    step.disarm(group.assign_timer)
    if calm:
        # Whatever an assignor says, nobody loses anything: who has been asked may keep it.
        progress.planning, progress.renamed = False, {}
        adopt_target(group, {}, snapshot_of(group, step), step)
        return
    if progress.asked_for != group.epoch:
        progress.asked_for, progress.asked = group.epoch, step.fresh_epoch(group.epoch)
    snapshot = extensions.prepare_snapshot(group, snapshot_of(group, step), step)
    seen = extensions.restrict_snapshot(epoch_ledger.consumer_view(group, step), snapshot, step)
    request = PlanRequest(group.id, progress.asked, snapshot.assignor, seen)
    try:
        plan = None if lacks_lags(request) else step.state.planner(request)
    except AssignorError as error:
        keep_last_target(group, str(error), step)
        return
    if plan is None:
        progress.planning = True
        step.out.plans.append(request)
    else:
        adopt_target(group, plan, snapshot, step)


def next_due_ms(group: ConsumerGroup, step: Step) -> int:
    interval_ms = ASSIGNMENT_INTERVAL.of(step.state, group.id)
    return step.past(group.target_timestamp_ms) + interval_ms if group.target_timestamp_ms and interval_ms else 0


def take_planned_target(group: ConsumerGroup, event: Planned, step: Step) -> None:
    """A target that was computed off the loop has come; one for an older epoch is of no use any more."""
    progress = group.progress
    if not progress.planning or progress.asked != event.epoch:
        return
    progress.planning = False
    renamed, progress.renamed = progress.renamed, {}
    if progress.asked_for != group.epoch:
        compute_target(group, step)
    elif event.plan is None:
        keep_last_target(group, event.error, step)
    else:
        plan = {renamed.get(member_id, member_id): share for member_id, share in event.plan.items()}
        adopt_target(group, plan, snapshot_seen_by(event, snapshot_of(group, step)), step)


def snapshot_seen_by(event: Planned, now: Snapshot) -> Snapshot:
    """The snapshot as it is now, with what the assignor was told beside the group."""
    seen = event.snapshot
    if seen is None:
        return now
    return replace(now, assignor=seen.assignor, lags=seen.lags, options=seen.options, stale=seen.stale)


def keep_last_target(group: ConsumerGroup, why: str, step: Step) -> None:
    """The group keeps its last good target; the assignor gets another chance after the interval."""
    step.plan_failed(group.id, why)
    pause_ms = max(ASSIGNMENT_INTERVAL.of(step.state, group.id), RETRY_FLOOR_MS)
    group.progress.retry_at_ms = step.now_ms + pause_ms
    step.arm(group.assign_timer, pause_ms)
    epoch_ledger.record_assignor_failure(group, why, step)


def adopt_target(group: ConsumerGroup, plan: Plan, snapshot: Snapshot, step: Step) -> None:
    """The plan is the target from here on; members get there one by one. One that the log cannot take has failed."""
    size = largest_share(plan)
    if size > step.limits.max_group_bytes:
        keep_last_target(group, too_large(group.id, "one member's partitions", size, step.limits), step)
        return
    extensions = step.state.extensions
    kept = extensions.correct_plan(epoch_ledger.consumer_view(group, step), plan, snapshot, step)
    before = {**epoch_ledger.targets_before(group, step), **kept.left_by}
    for member in group.members.values():
        share = share_by_id(kept.plan.get(member.id, {}), step)
        if share != group.target_of(member):
            step.keep(TargetStored(group.id, member.id, share))
    step.keep(TargetEpochStored(group.id, group.epoch, step.now_ms))
    group.progress.retry_at_ms = group.progress.fenced_until_ms = 0
    epoch_ledger.record_target(group, before, kept.told_in(snapshot, whole=True), step)
    extensions.plan_adopted(group.id, kept.inherited, step)


def share_by_id(share: Mapping[str, tuple[int, ...]], step: Step) -> Shares:
    ids = step.state.topic_ids
    return {ids[topic]: frozenset(share[topic]) for topic in sorted(share) if topic in ids and share[topic]}


def preferred_assignor(group: ConsumerGroup, step: Step) -> str:
    """The operator's; else the one that most members ask for, the first asked for in a tie; else the first that is
    configured."""
    if wanted := chosen_assignor(step.state, group.id):
        return wanted
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.server_assignor is not None:
            name = canonical_name(member.server_assignor, step.limits)
            votes[name] = votes.get(name, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else step.limits.consumer_assignors[0]


def snapshot_of(group: ConsumerGroup, step: Step) -> Snapshot:
    """All that the target depends on. What members own is what the last target gave them."""
    state = step.state
    subscribed = {member.id: group.subscribed_names(member) for member in group.members.values()}
    topics = {topic: state.partitions[topic] for topic in sorted(group.subscribed_topics() & state.topic_ids.keys())}
    return Snapshot(
        topics=topics,
        members=[assignor_member(group, member, subscribed[member.id], step) for member in group.members.values()],
        assignor=loadable_name(preferred_assignor(group, step), step.limits),
        options=chosen_options(state, group.id),
    )


def assignor_member(
    group: ConsumerGroup, member: ConsumerMember, subscribed: frozenset[str], step: Step
) -> AssignorMember:
    had = group.targets.get(member.id)
    names = step.state.topic_names
    return AssignorMember(
        id=member.id,
        topics=tuple(sorted(subscribed)),
        owned=None if had is None else {names[t]: sorted(p) for t, p in had.items() if t in names},
        generation=-1 if had is None else group.epoch,
        instance_id=member.instance_id,
        rack=member.rack_id,
    )


def readable_target(group: ConsumerGroup, member: ConsumerMember, step: Step) -> Shares:
    """The member's target without the topics that it no longer reads, or that are no more."""
    subscribed = group.subscribed_names(member)
    names = step.state.topic_names

    def reads(topic: TopicId) -> bool:
        return names.get(topic) in subscribed

    return {topic: partitions for topic, partitions in group.target_of(member).items() if reads(topic)}


def readable_of(group: ConsumerGroup, member: ConsumerMember, told: Shares | None, step: Step) -> Shares | None:
    """The same without what the member may not read: the target may be older than its rights."""
    if told is None or member.rights is None:
        return told
    subscribed, names = group.subscribed_names(member), step.state.topic_names
    return {topic: partitions for topic, partitions in told.items() if names.get(topic) in subscribed} or None


def has_what_it_may_not(group: ConsumerGroup, member: ConsumerMember, state: ShardState) -> bool:
    """Whether its next word takes topics from it that it may no longer read, whenever the next target is due."""
    if member.rights is None or member.state is ConsumerMemberState.UNREVOKED:
        return False
    subscribed, names = group.subscribed_names(member), state.topic_names
    return any(names.get(topic) not in subscribed for topic in member.assigned)


def take_rights(group: ConsumerGroup, member: ConsumerMember, rights: Rights, step: Step) -> list[RebalanceTrigger]:
    """A heartbeat has said what the member may. Returns what calls for a new epoch."""
    if target_fits_rights(group, member, rights, step.state):
        member.rights = rights
        return []
    before, member.rights = group.subscribed_names(member), rights
    what = describe_rights_change(before, group.subscribed_names(member)) or "may read what nobody was given"
    return [trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what)]


def target_fits_rights(group: ConsumerGroup, member: ConsumerMember, rights: Rights, state: ShardState) -> bool:
    """Whether the target can stay when the member is heard to have these rights."""
    if rights == member.rights:
        return True
    now = readable_topics(rights, group.named_by(member))
    # What the target was made with is not known of who is heard for the first time: only what came of it.
    return (
        target_still_fits(group, member, now, state) if member.rights is None else now == group.subscribed_names(member)
    )


def target_still_fits(
    group: ConsumerGroup, member: ConsumerMember, may_read: frozenset[str], state: ShardState
) -> bool:
    """Whether the target can stay: who has not been heard since the log was read has said nothing new by that.

    It cannot where the member was to have what it may not read, or where nobody has what it may.
    """
    ids, names = state.topic_ids, state.topic_names
    if any(names.get(topic) not in may_read for topic in group.target_of(member)):
        return False
    given = {topic for share in group.targets.values() for topic in share}
    return all(ids[topic] in given for topic in may_read & ids.keys())


def rights_changed(group: ConsumerGroup, event: RightsAnew, step: Step) -> None:
    """The lists have changed: one epoch for all whose topics are others now."""
    triggers = [
        trigger
        for member in group.members.values()
        for trigger in take_rights(group, member, refreshed_rights(member.rights, event), step)
    ]
    if triggers:
        request_target(group, triggers[0], step)


# Regular expressions
# -------------------

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
            f"{regex!r} is not a regular expression in RE2 syntax: {error}",
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
    request_target(group, trigger, step)


def forget_unused_regex(group: ConsumerGroup, regex: str | None, step: Step) -> None:
    """The last member that used the expression is gone, or uses another one."""
    if regex and regex in group.regexes and not group.regex_users(regex):
        group.progress.resolved.pop(regex, None)
        step.keep(RegexDeleted(group.id, regex))
