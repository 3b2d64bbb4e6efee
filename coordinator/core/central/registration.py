"""RegisterConsumer: somebody comes, comes back, or wants to read something else. Checks come first."""

from muster.coordinator.core.central import ownership_ledger, positions, rebalance, telling, topics
from muster.coordinator.core.central.group import NOT_FETCHING, CentralGroup, CentralMember
from muster.coordinator.core.consumer.regex import check_regex
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.events import RegisterConsumer
from muster.coordinator.core.model.ledger import trigger_by_member
from muster.coordinator.core.model.plan import canonical_name, runnable_assignors
from muster.coordinator.core.model.records import CentralStored
from muster.coordinator.core.model.types import Cause, Limits
from muster.coordinator.errors import CoordinatorError, ErrorCode


def register_consumer(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    """Take the member in and look at what that changes. Refusals change nothing."""
    check_registration_form(request, step.limits)
    check_fits_group(group, request, step.limits)
    member = group.members.get(request.member_id)
    if request.stream:
        change_subscription(group, request, step)
    elif member is not None:
        restore_member(group, member, request, step)
    else:
        add_member(group, request, step)


def open_group(request: RegisterConsumer, step: Step) -> None:
    """The first member of a new group registers."""
    check_may_open(request, step.limits)
    opened_group(request, 0, step)
    register_consumer(step.state.get(CentralGroup, request.group_id), request, step)


def check_registration_form(request: RegisterConsumer, limits: Limits) -> None:
    """The request makes sense by itself."""
    if not request.group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; give the group a name")
    if not request.member_id:
        raise invalid_registration("member_id is empty; make one (a uuid) and keep it for the life of the process")
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        raise CoordinatorError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {request.session_timeout_ms} ms is not between group.min.session.timeout.ms "
            f"({limits.min_session_timeout_ms}) and group.max.session.timeout.ms ({limits.max_session_timeout_ms})",
        )
    if not request.topics and not request.regex:
        raise invalid_registration("a member that registers has to give topic names or a regular expression")
    if request.regex:
        check_regex(request.regex)
    check_assignor_allowed(request, limits)


def check_assignor_allowed(request: RegisterConsumer, limits: Limits) -> None:
    """A client must not name code to be imported here."""
    names = runnable_assignors(limits)
    if canonical_name(request.assignor, limits) not in names:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{request.assignor!r} is not an assignor that this coordinator runs; known here: {', '.join(names)}",
        )


def check_may_open(request: RegisterConsumer, limits: Limits) -> None:
    """Refuse what could not register with a group that nobody is in."""
    check_registration_form(request, limits)
    if request.stream:
        raise refuse_unregistered(request)
    if request.generation != NOT_FETCHING or request.owned:
        raise refuse_foreign_member(request, "the group is new here")


def opened_group(request: RegisterConsumer, generation: int, step: Step) -> None:
    """The group in its central form. Its generations go on where those of its former kind ended."""
    step.keep(CentralStored(request.group_id, generation, canonical_name(request.assignor, step.limits), step.now_ms))


def check_fits_group(group: CentralGroup, request: RegisterConsumer, limits: Limits) -> None:
    """What the request says agrees with the group as it is."""
    member = group.members.get(request.member_id)
    if request.stream:
        if member is None or member.stream != request.stream:
            raise refuse_unregistered(request)
    elif member is not None and not member.lost:
        raise CoordinatorError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"member id {request.member_id!r} of group {group.id!r} is registered by another stream, which is open; "
            "give each consumer an id of its own, or wait until that stream is given up",
        )
    others = len(group.members) - (member is not None)
    if others and canonical_name(request.assignor, limits) != group.assignor:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of group {group.id!r} assign by {group.assignor!r}, this one by {request.assignor!r}; "
            "give all of them the same partition.assignment.strategy",
        )
    if member is None and len(group.members) >= limits.max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.max.size ({limits.max_group_size}); "
            "stop a member or raise the limit",
        )
    if not request.stream:
        check_may_go_on(group, member, request)


def check_may_go_on(group: CentralGroup, member: CentralMember | None, request: RegisterConsumer) -> None:
    """Whoever is still fetching must be doing so with the group's knowledge."""
    if request.generation == NOT_FETCHING and not request.owned:
        return
    share = group.owned.get(request.member_id, {})
    cells = {(topic, partition) for topic, partitions in share.items() for partition in partitions}
    if member is None or request.generation != group.generation or cells != set(request.owned):
        raise refuse_foreign_member(request, f"the group is at generation {group.generation}")


def add_member(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    member = CentralMember(request.member_id, request.client_id, request.client_host, request.session_timeout_ms)
    member.client_software, member.rights = request.client_software, request.rights
    group.members[member.id] = member
    take_in_registration(group, member, request, step)
    rebalance.request_rebalance(group, trigger_by_member(Cause.MEMBER_JOINED, member, "registered"), step)


def restore_member(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    """Its lease runs: if it still fetches what is stored for it, nothing has happened to anybody."""
    before = (member.topics, member.regex, member.rights or request.rights)
    step.disarm(group.lease_timer(member.id))
    member.fetching = request.generation
    member.may_fetch = request.generation != NOT_FETCHING
    take_in_registration(group, member, request, step)
    positions.keep_positions(group, member, request.offsets, step)
    if (member.topics, member.regex, member.rights) != before:
        changed = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, "came back with another subscription")
        rebalance.request_rebalance(group, changed, step)
    else:
        group.progress.dirty = True
        rebalance.advance_task(group, step)


def take_in_registration(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    """What the request says of the member is true from here on, and its stream is the one that counts."""
    group.assignor = canonical_name(request.assignor, step.limits)
    member.client_id, member.client_host = request.client_id, request.client_host
    member.client_software, member.rights = request.client_software, request.rights
    member.session_timeout_ms = request.session_timeout_ms
    member.rack_id = request.rack_id
    member.stream, member.gone = request.request_id, None
    member.heard_ms, member.timed_out = step.now_ms, 0
    member.last_number = member.answered = 0
    set_subscription(group, member, request, step)
    step.reply(request.request_id, CentralReply())
    step.arm(group.ping_timer(member.id), member.ping_interval_ms)


def set_subscription(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    former, member.regex = member.regex, request.regex
    member.topics = frozenset(request.topics)
    topics.forget_unused_regex(group, former)
    topics.request_resolution(group, member.regex, step)
    if why := ownership_ledger.missing_topics_sentence(group, member.topics, step):
        telling.report_failure(
            member, f"{why}; create it there, or stop that node so that the one that has it is elected", step
        )


def change_subscription(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    _, member = telling.require_speaker(request.group_id, request.member_id, request.stream, step)
    before = (member.topics, member.regex, member.rights)
    member.rights = request.rights
    set_subscription(group, member, request, step)
    step.reply(request.request_id, CentralReply())
    if (member.topics, member.regex, member.rights) != before:
        changed = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, "changed its subscription")
        rebalance.request_rebalance(group, changed, step)


def refuse_unregistered(request: RegisterConsumer) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"member {request.member_id!r} is not registered by this stream"
    )


def refuse_foreign_member(request: RegisterConsumer, why: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.ILLEGAL_GENERATION,
        f"member {request.member_id!r} fetches {len(request.owned)} partitions of generation {request.generation}, but "
        f"{why}, and they are not its own in it; give up everything and register with nothing",
    )


def another_kind(group_id: str, kind: str, members: int) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"group {group_id!r} is a {kind} group with {members} members; stop them first, or use another group.id",
    )


def invalid_registration(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)
