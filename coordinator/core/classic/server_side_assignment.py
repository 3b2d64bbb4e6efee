"""Assignment on the coordinator for classic members (docs/protocol/remote.md, docs/control.md).

Once every member of a group asks for it (`group.remote.assignor`), or an operator has set `assignor`, the group has
no leader: the coordinator runs the assignor on what the members reported, and the answers to SyncGroup carry the
shares. What is slow, or not built in, runs off the event loop; `Planned` brings the plan. An assignor that fails
costs no partition: the last plan stays if it still fits, otherwise the group tries again.

What members may read restricts the plans of the coordinator; where members plan themselves, their fetches are refused.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.assignors.api import (
    Assignment,
    AssignorError,
    JsonValue,
    RebalanceProtocol,
    Snapshot,
)
from muster.assignors.api import (
    Member as AssignorMember,
)
from muster.assignors.api import (
    Plan as AssignorPlan,
)
from muster.assignors.data.consumer_protocol import NEWEST, encode_assignment, member_from_subscription
from muster.assignors.data.values import CLAIMS, FALLBACK, HANDOVER, REASON
from muster.assignors.run import hand_over, run
from muster.coordinator.core.classic import group as classic_group
from muster.coordinator.core.classic import rebalance_ledger
from muster.coordinator.core.classic.group import (
    A_MEMBER,
    ClassicGroup,
    ClassicMember,
    ClassicPlanner,
    choose_classic_planner,
    classic_view,
    handoff_timeout_ms,
    remembered_shares,
)
from muster.coordinator.core.classic.rebalance_ledger import accept_plan, disarm_when_complete
from muster.coordinator.core.groups.bookkeeping import newest_plan_entry
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.events import JoinGroup, Planned
from muster.coordinator.core.model.ledger import RebalanceTrigger, WithheldPartition
from muster.coordinator.core.model.plan import (
    CONSUMER,
    Plan,
    PlanRequest,
    canonical_name,
    lacks_lags,
    loadable_name,
    owned_of,
    runnable_assignors,
    shares_of,
    too_large,
    topics_of,
)
from muster.coordinator.core.model.plan_correction import DRAINS, partition_set
from muster.coordinator.core.model.rights import Rights, describe_rights_change, readable_topics
from muster.coordinator.core.model.types import Cause, GroupState, Limits
from muster.coordinator.core.settings.assignor_choice import chosen_assignor, chosen_options
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Rights
# ------


def restrict_subscription(member: ClassicMember, said: AssignorMember) -> AssignorMember:
    """The same, subscribed to nothing that it may not read."""
    if member.rights is None:
        return said
    allowed = readable_topics(member.rights, frozenset(said.topics))
    if len(allowed) == len(set(said.topics)):
        return said
    return replace(said, topics=tuple(topic for topic in said.topics if topic in allowed))


def take_rights(group: ClassicGroup, member: ClassicMember, rights: Rights, state: ShardState) -> str:
    """A word of the member has said what it may. By what a plan that stands is void; empty: it stands.

    What it was made with is not known of who is heard for the first time since the log was read: only what came of it.
    """
    known, member.rights = member.rights, rights
    if not group.remote or rights == known:
        return ""
    named = topics_of(member.metadata(group.protocol_name)) or frozenset()
    was, now = readable_topics(known, named), readable_topics(rights, named)
    if was == now if known is not None else plan_fits_rights(group, member, now, state):
        return ""
    return describe_rights_change(was, now) or "may read what nobody was given"


def plan_fits_rights(group: ClassicGroup, member: ClassicMember, may_read: frozenset[str], state: ShardState) -> bool:
    """Whether the plan gives the member nothing that it may not read, and somebody everything that it may.

    What waits for its former owner to let go is as good as given.
    """
    if not shares_of(member.assignment).keys() <= may_read:
        return False
    given = {topic for other in group.members.values() for topic in shares_of(other.assignment)}
    given.update(topic for topic, _ in group.carried)
    return may_read & state.partitions.keys() <= given


ASKED, SET = "remote", "setting"
"""What the ledger says of a snapshot that this module made: the members asked for it, or an operator had set it."""

NOW = "now.ms"
"""The option by which a plan that balance weighed is known: nothing else hands it in."""

FIRST_RETRY_MS = 1_000
MAX_RETRY_MS = 30_000


@dataclass(frozen=True, slots=True)
class LastPlanAssignor:
    """Stands in for an assignor that failed: everybody keeps what it had."""

    plan: AssignorPlan
    name: str = "last-good"
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> AssignorPlan:
        return self.plan


def check_assignor_allowed(request: JoinGroup, limits: Limits) -> None:
    """Refuse what the coordinator cannot run, or will not: a client must not name code to be imported here."""
    word = request.remote_assignor
    if not word:
        return
    if request.protocol_type != CONSUMER:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group.remote.assignor {word!r} cannot assign for protocol_type {request.protocol_type!r}; "
            f"it needs {CONSUMER!r}, whose subscriptions the coordinator can read",
        )
    names = runnable_assignors(limits)
    if requested_assignor(request, limits) not in names:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{word!r} is not an assignor of this coordinator; known here: {', '.join(names)}",
        )


def requested_assignor(request: JoinGroup, limits: Limits) -> str:
    """The assignor's own name, whichever of its names the client used; empty when it asks for none."""
    return canonical_name(request.remote_assignor, limits) if request.remote_assignor else ""


def assignor_asked_by_all(group: ClassicGroup) -> str:
    """The assignor that most members ask for, ties by order of arrival; empty unless every member asks for one."""
    words = [member.remote_assignor for member in group.members.values()]
    if "" in words:
        return ""
    counts = Counter(words)
    return max(counts, key=lambda word: counts[word])


def planner_of(group: ClassicGroup, step: Step) -> ClassicPlanner:
    """Who is to plan for the group as it is.

    While it is frozen, or deployed, the coordinator keeps what it plans: a leader would move partitions as it likes.
    """
    members = tuple(group.members.values())
    if not members:
        return A_MEMBER
    protocol = group.protocol_name or ""
    found = choose_classic_planner(
        step.state, group.id, group.protocol_type, protocol, members, assignor_asked_by_all(group)
    )
    if group.planner.assignor and not found.assignor and step.state.extensions.protects_members(group.id, step.state):
        return group.planner
    return found


def request_plan(group: ClassicGroup, step: Step) -> None:
    """Have the plan of this generation made: at once where that is quick, else off the loop."""
    plain, extensions = snapshot_of(group, step), step.state.extensions
    group.planned_options = plain.options
    snapshot = extensions.prepare_snapshot(group, plain, step)
    asked = extensions.restrict_snapshot(classic_view(group), snapshot, step)
    request = PlanRequest(group.id, step.fresh_epoch(group.generation), snapshot.assignor, asked)
    group.plan_request = request
    if extensions.protects_members(group.id, step.state):
        # Whatever an assignor says, nobody loses anything.
        hand_out_plan(group, plain, {}, step)
        return
    if lacks_lags(request):
        step.out.plans.append(request)
        return
    try:
        plan = step.state.planner(request)
    except AssignorError as error:
        handle_failed_plan(group, request, str(error), step)
        return
    if plan is None:
        step.out.plans.append(request)
    else:
        hand_out_plan(group, request.snapshot, plan, step)


def take_planned(group: ClassicGroup, event: Planned, step: Step) -> None:
    """A plan that was put off is there, or its assignor failed. One that was asked for earlier is void."""
    request = group.plan_request
    if request is None or event.epoch != request.epoch:
        return
    seen = event.snapshot or request.snapshot
    if event.plan is None:
        handle_failed_plan(group, replace(request, snapshot=seen), event.error, step)
    else:
        hand_out_plan(group, seen, event.plan, step)


def hand_out_plan(group: ClassicGroup, snapshot: Snapshot, target: Plan | Assignment, step: Step) -> None:
    """Hand out the plan, holding back what a cooperative member has to let go of first (KIP-429)."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    whole = (target if isinstance(target, Assignment) else Assignment(target)).to_dict()
    plan: Plan = {member: {topic: tuple(row) for topic, row in share.items()} for member, share in whole.items()}
    extensions = step.state.extensions
    snapshot = extensions.restore_snapshot(group.id, snapshot, lambda: snapshot_of(group, step), step)
    kept = extensions.correct_plan(classic_view(group), plan, snapshot, step)
    snapshot = state_handover(group, snapshot)
    cut = hand_over(snapshot, Assignment(kept.plan), classic_group.absent_with_claims(group))
    if not kept.why and held_for_unasked(kept.unasked, snapshot, cut):
        kept = replace(kept, why=DRAINS)
    shares = cut.to_dict()
    version = lowest_version(group)
    # Nobody gets no bytes at all: clients take that for a broken answer where an empty list is a share like any other.
    blobs = {member: encode_assignment(shares.get(member, {}), None, version) for member in sorted(group.members)}
    size = group.stored_bytes(blobs)
    if size > step.limits.max_group_bytes and group.plan_request is not None and FALLBACK not in snapshot.options:
        why = too_large(group.id, "the plan and the subscriptions", size, step.limits)
        handle_failed_plan(group, replace(group.plan_request, snapshot=snapshot), why, step)
        return
    group.plan_request = None
    if FALLBACK not in snapshot.options:
        group.plan_failures = 0
    group.planned_topics = dict(snapshot.topics)
    source = SET if group.planner.by_setting else ASKED
    carried = group.carried
    name = canonical_name(snapshot.assignor, step.limits)
    given = rebalance_ledger.PlanProvenance(kept.told_in(snapshot).to_json(), source, assignor=name)
    accept_plan(group, blobs, given, step)
    extensions.plan_adopted(group.id, kept.inherited, step)
    carry_waiting_shares(group, carried, step)
    disarm_when_complete(group, step)
    if cut.withheld:
        await_release(group, step)


def state_handover(group: ClassicGroup, snapshot: Snapshot) -> Snapshot:
    """The same, stating whose claims hold partitions back: of what eager members own, nothing is held any more."""
    remembered = remembered_shares(group)
    holding = [member.id for member in snapshot.members if member.owned and member.id not in remembered]
    return replace(snapshot, options={**snapshot.options, HANDOVER: holding if remembered else CLAIMS})


def held_for_unasked(unasked: frozenset[str], snapshot: Snapshot, cut: Assignment) -> bool:
    """Whether partitions wait for members that the assignor was not told of: its plan again gives them at once."""
    claims = {
        (topic, partition)
        for member in snapshot.members
        if member.id in unasked
        for topic, partitions in (member.owned or {}).items()
        for partition in partitions
    }
    return not claims.isdisjoint(cut.withheld)


def carry_waiting_shares(group: ClassicGroup, carried: Mapping[tuple[str, int], WithheldPartition], step: Step) -> None:
    """What still waits for an heir has had no owner since before this plan."""
    holds = step.state.holds.get(group.id)
    for share in holds.shares if holds is not None else ():
        group.carried.update({cell: carried[cell] for cell in partition_set(share) if cell in carried})


def await_release(group: ClassicGroup, step: Step) -> None:
    """Whoever has to let go says so by joining again, which begins the round that gives out. If nobody does, we do."""
    wait_ms = handoff_timeout_ms(step.state, group.id) or group.max_rebalance_timeout_ms
    step.arm(group.follow_timer, wait_ms)


def await_holders(group: ClassicGroup, step: Step) -> None:
    """The round that gives out has begun; whoever holds what is to be given has to come before long."""
    wait_ms = handoff_timeout_ms(step.state, group.id)
    if group.remote and group.carried and 0 < wait_ms < group.max_rebalance_timeout_ms:
        step.arm(group.handoff_timer, wait_ms)


def lowest_version(group: ClassicGroup) -> int:
    """Of all subscriptions: a share in it can be read by every member. What cannot be read has none."""
    return min((version_of(member.metadata(group.protocol_name)) for member in group.members.values()), default=NEWEST)


def version_of(subscription: bytes) -> int:
    """It begins with it. A newer one than is known here is read as the newest that is."""
    version = int.from_bytes(subscription[:2], signed=True)
    return min(version, NEWEST) if len(subscription) >= 2 and version >= 0 else NEWEST


def handle_failed_plan(group: ClassicGroup, request: PlanRequest, why: str, step: Step) -> None:
    """Keep the last plan if it still fits; else leave the members waiting, and try again a little later."""
    step.plan_failed(group.id, why)
    last = rebalance_ledger.last_plan(group)
    if last.keys() == group.members.keys():
        try:
            everybody = step.state.extensions.restore_snapshot(
                group.id, request.snapshot, lambda: snapshot_of(group, step), step
            )
            kept = run(LastPlanAssignor(last), everybody, withhold=False)
        except AssignorError:
            pass  # Topics or subscriptions changed since: it would lose partitions.
        else:
            told: dict[str, JsonValue] = {FALLBACK: "last good assignment", REASON: why}
            options = {**request.snapshot.options, **told}
            hand_out_plan(group, replace(request.snapshot, options=options), kept, step)
            return
    group.plan_request = None
    retry_ms = min(FIRST_RETRY_MS << min(group.plan_failures, 10), MAX_RETRY_MS)
    group.plan_failures += 1
    group.plan_error = why
    rebalance_ledger.note_trigger(
        group,
        RebalanceTrigger(Cause.ASSIGNOR_FAILED, f"{why}; no earlier plan fits, next try in {retry_ms} ms"),
        step,
    )
    step.arm(group.assign_timer, retry_ms)


def snapshot_of(group: ClassicGroup, step: Step) -> Snapshot:
    said = [(member, assignor_member(member, group.protocol_name)) for member in group.members.values()]
    topics = sorted({topic for _, read in said for topic in read.topics})
    members = [restrict_subscription(*each) for each in said]
    if group.state is GroupState.COMPLETING_REBALANCE:
        # Whoever missed this round is held to the last plan, not to what it said before that.
        members = classic_group.with_last_shares(group, members)
        members = with_remembered_shares(group, members)
    partitions = step.state.partitions
    counts = {topic: partitions[topic] for topic in topics if topic in partitions}
    options = chosen_options(step.state, group.id)
    return Snapshot(counts, members, assignor=loadable_name(group.remote, step.limits), options=options)


def with_remembered_shares(group: ClassicGroup, members: Sequence[AssignorMember]) -> list[AssignorMember]:
    """The same, where eager members own what the last plan gave them: an assignor that keeps it costs fewer moves."""
    shares = remembered_shares(group)
    generation = group.stored.generation if group.stored is not None else -1
    return [
        replace(each, owned=shares[each.id], generation=generation) if each.id in shares else each for each in members
    ]


def as_last_planned(group: ClassicGroup, step: Step) -> Snapshot | None:
    """What a plan would be made from now, were everybody to say that it holds what it was given last."""
    if group.protocol_type != CONSUMER or not group.members:
        return None
    snapshot = snapshot_of(group, step)
    shares = rebalance_ledger.current_plan(group)
    members = [replace(each, owned=dict(shares[each.id]), generation=group.generation) for each in snapshot.members]
    return replace(snapshot, members=members)


def assignor_member(member: ClassicMember, protocol: str | None) -> AssignorMember:
    """A member whose subscription cannot be read takes part without topics.

    What one that votes for `sticky` still holds counts for more than what it remembers: nobody else may have it yet.
    """
    said = member.metadata(protocol)
    try:
        if protocol == "sticky" and any(owned_of(said).values()):
            held = member_from_subscription(member.id, member.group_instance_id, said)
            return replace(held, user_data=b"")
        return member_from_subscription(member.id, member.group_instance_id, said, protocol or "")
    except ValueError:
        return AssignorMember(member.id, (), instance_id=member.group_instance_id)


def restore_last_plan(group: ClassicGroup, step: Step) -> None:
    """After a reload the ledger tells who made the last plan, and from which partition counts.

    If an operator had set it, the members' own words are lost: none of them counts as asking. Of a plan that balance
    weighed, neither is on record what else would have planned, nor with which options: what is set counts.
    """
    last = newest_plan_entry(group, step)
    if last is None or last.snapshot_source not in (ASKED, SET) or last.generation != group.generation:
        return
    snapshot = Snapshot.from_json(last.snapshot_json)
    by_setting = last.snapshot_source == SET
    name, options = canonical_name(snapshot.assignor, step.limits), snapshot.options
    if NOW in options:
        name, options = chosen_assignor(step.state, group.id) or name, chosen_options(step.state, group.id)
    group.planner = ClassicPlanner(name, by_setting)
    group.planned_topics, group.planned_options = dict(snapshot.topics), options
    if by_setting:
        return
    for member in group.members.values():
        member.remote_assignor = group.remote
