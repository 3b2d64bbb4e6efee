"""Says in one line what a record or a reply is, for stories and failing seeds."""

import json
from collections.abc import Iterable, Iterator

from muster.coordinator.core.consumer.group import ConsumerMemberState
from muster.coordinator.core.control.trials.canary import guard_text
from muster.coordinator.core.model import effects, records
from muster.coordinator.core.model import records as central
from muster.coordinator.core.model import records as consumer
from muster.coordinator.core.model import records as holds
from muster.coordinator.core.model import records as trial
from muster.coordinator.core.model.effects import CanaryReply, TxnEndedReply, TxnOffsetCommitReply
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.records import (
    NEVER_MS,
    BalanceForgotten,
    BalanceRecord,
    BalanceStored,
    FenceForgotten,
    FenceStored,
)
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    Limits,
    RebalanceEntry,
    RebalancePhase,
    Score,
    Stall,
    StoredOffset,
)
from muster.coordinator.errors import ErrorCode


def describe_records(decided: Iterable[records.Record]) -> Iterator[str]:
    for record in decided:
        if isinstance(record, records.OffsetsStored):
            yield from (describe_offset(*tp, value) for tp, value in record.offsets.items())
        elif isinstance(record, records.TxnOffsetsStored):
            of = f"in transaction {record.producer_id}/{record.epoch}"
            yield from (f"{describe_offset(*tp, value)} {of}" for tp, value in record.offsets.items())
        elif isinstance(record, records.TxnMarked):
            yield f"append marker {record.producer_id}/{record.epoch} {'commits' if record.commit else 'aborts'}"
        elif isinstance(record, records.RebalanceShadowed):
            yield from (f"ledger #{record.number} shadow {describe_score(score)}" for score in record.scores)
        else:
            yield describe_record(record)


def describe_record(record: records.Record) -> str:
    match record:
        case records.GroupStored():
            shares = "".join(f" {member.member_id}={share(member.assignment)}" for member in record.members)
            leader = f" leader={record.leader}" if record.leader else ""
            return f"append GroupStored {record.group_id} generation={record.generation}{leader}{shares or ' empty'}"
        case records.GroupDeleted():
            return f"append GroupDeleted {record.group_id or '(no name)'}"
        case records.OffsetStored():
            return describe_offset(record.topic, record.partition, record.value)
        case records.OffsetDeleted():
            return f"append OffsetDeleted {record.topic}-{record.partition}"
        case records.RebalanceDecided():
            return f"ledger {describe_entry(record.entry)}"
        case records.RebalanceSettled():
            settled = record.settlement
            return f"ledger #{settled.number} settled: {settled.unowned_partition_ms} partition-ms unowned"
        case records.RebalanceForgotten() | records.ShadowsForgotten():
            shadows = " shadows" if isinstance(record, records.ShadowsForgotten) else ""
            return f"ledger #{record.number}{shadows} forgotten"
        case records.DelayStored() | records.DelayForgotten():
            return describe_delay(record)
        case records.StallRecorded() | records.StallForgotten():
            return describe_stall_record(record)
        case trial.CanaryStored() | trial.CanaryForgotten() | holds.HoldsStored() | holds.HoldsEnded():
            return f"append {describe_control(record)}"
        case records.SettingsStored() | records.SettingsUnset():
            return describe_settings(record)
        case BalanceStored() | BalanceForgotten() | FenceStored() | FenceForgotten():
            return describe_balance(record) if isinstance(record, BalanceRecord) else describe_fence(record)
        case central.CentralStored():
            shares = "".join(f" {owner.member_id}={owned(owner)}" for owner in record.owners)
            return f"ledger owners of {record.group_id} generation={record.generation}{shares or ' nobody'}"
        case central.CentralDeleted():
            return f"ledger owners of {record.group_id} forgotten"
        case _:
            return f"append {type(record).__name__} {describe_consumer_record(record)}"


def describe_delay(record: records.DelayStored | records.DelayForgotten) -> str:
    if isinstance(record, records.DelayForgotten):
        return "ledger what the leader knew is forgotten"
    until = "no delay" if record.until_ms is None else f"delay until {record.until_ms}ms"
    return f"ledger leader knows {record.leader_state}, {until}"


def describe_score(score: Score) -> str:
    if score.failure:
        return f"{score.assignor} failed: {score.failure}"
    loads = (("count", score.balance_count), ("lag", score.balance_lag), ("rate", score.balance_rate))
    balance = " ".join(f"{name}={figure:g}" for name, figure in loads if figure is not None)
    return (
        f"{score.assignor} {balance} moves={score.moves} differs={score.differs} unassigned={score.unassigned}"
        f" of {score.members} members"
    )


def describe_stall_record(record: records.StallRecorded | records.StallForgotten) -> str:
    if isinstance(record, records.StallForgotten):
        return f"ledger stall #{record.number} forgotten"
    return f"ledger stall #{record.stall.number}: {describe_stall(record.stall)}"


def describe_fence(record: FenceStored | FenceForgotten) -> str:
    what = f"append fence of {record.topic}-{record.partition}"
    if isinstance(record, FenceForgotten):
        return f"{what} forgotten"
    former = f" after {','.join(map(str, record.former))}" if record.former else ""
    return f"{what} {record.producer_id}/{record.epoch}{former}"


def describe_balance(record: BalanceRecord) -> str:
    if isinstance(record, BalanceForgotten):
        return f"append BalanceForgotten {record.group_id}"
    moved = [
        f"{topic}-{partition}@{at_ms}ms"
        for at_ms, topics in record.moved
        for topic, partitions in topics
        for partition in partitions
    ]
    told = "" if record.watched_at_ms == NEVER_MS else f" watched@{record.watched_at_ms}ms"
    return f"append BalanceStored {record.group_id}{told} moved {' '.join(moved) or 'nothing'}"


def describe_claim(reply: effects.ClaimFenceReply) -> str:
    former = f" after {','.join(map(str, reply.former))}" if reply.former else ""
    return code(reply.code) if reply.code else f"{reply.producer_id}/{reply.epoch}{former}"


def describe_control(record: trial.CanaryRecord | holds.HoldsRecord) -> str:
    if isinstance(record, holds.HoldsStored | holds.HoldsEnded):
        return f"{type(record).__name__} {describe_holds(record)}"
    return describe_canary(record)


def describe_canary(record: trial.CanaryRecord) -> str:
    if isinstance(record, trial.CanaryForgotten):
        return f"CanaryForgotten {record.group_id}"
    tally = record.tally
    counted = (
        *(("rebalances", tally.rebalances), ("moves", tally.moves), ("settled", tally.settled)),
        *(("unowned_ms", tally.unowned_ms), ("failures", tally.plan_failures), ("expired", tally.expired)),
        ("own", tally.own_round),
    )
    seen = "".join(f" {name}={count}" for name, count in counted if count)
    why = f" ({record.ended})" if record.ended else ""
    until = f" until {record.until_ms}ms" if record.runs else ""
    options = json.dumps(dict(record.options)) if record.options else ""
    return f"Canary {record.group_id} {record.state.value} {record.assignor}{options}{until}{seen}{why}"


def describe_settings(record: records.SettingsStored | records.SettingsUnset) -> str:
    if isinstance(record, records.SettingsUnset):
        return f"append SettingsUnset {record.group_id}"
    suspended = f" suspended: {record.suspended}" if record.suspended else ""
    return f"append SettingsStored {record.group_id} version={record.version} {json.dumps(record.values)}{suspended}"


def describe_holds(held: holds.HoldsRecord) -> str:
    if isinstance(held, holds.HoldsEnded):
        return held.group_id
    words = [f"{held.group_id} version={held.version}"]
    if held.freeze is not None:
        words.append(f"freeze orphans={held.freeze.orphans.value}{ends(held.freeze.until)}")
    if held.deploy is not None:
        words.append(
            f"deploy {held.deploy.back}/{held.deploy.expect} hold={held.deploy.hold_ms}{ends(held.deploy.until)}"
        )
    words += [f"drain {drain.by.value} {drain.name}{ends(drain.until)}" for drain in held.drains]
    words += [f"pin {pin.topic}-{pin.partition} {pin.name}{ends(pin.until)}" for pin in held.pins]
    for share in held.shares:
        parts = ",".join(f"{topic}-{p}" for topic, partitions in share.share for p in partitions)
        words.append(f"waiting {parts} of {share.member_id}{ends(share.until)}")
    return "; ".join(words)


def ends(until: holds.Until | None) -> str:
    return "" if until is None else f" until={until.at_ms}ms"


def describe_offset(topic: str, partition: int, value: StoredOffset) -> str:
    note = f" metadata={value.metadata}" if value.metadata else ""
    until = "" if value.expire_timestamp_ms is None else f" until={value.expire_timestamp_ms}ms"
    return f"append OffsetStored {topic}-{partition}={value.offset}{note}{until}"


def owned(owner: central.CentralOwner) -> str:
    return ",".join(f"{topic}-{p}" for topic, partitions in owner.share for p in partitions) or "nothing"


def describe_consumer_record(record: consumer.ConsumerRecord) -> str:
    match record:
        case consumer.GroupEpochStored():
            return f"epoch={record.epoch}"
        case consumer.TargetEpochStored():
            return f"epoch={record.epoch}" + ("" if record.timestamp_ms else " at once")
        case consumer.ConsumerMemberStored():
            return describe_member(record)
        case consumer.TargetStored():
            return f"{record.member_id} {cells(record.partitions)}"
        case consumer.CurrentStored():
            revoking = f" revoking {cells(record.revoking)}" if record.revoking else ""
            state = ConsumerMemberState(record.state).name
            return f"{record.member_id} epoch={record.epoch} {state} {cells(record.assigned)}{revoking}"
        case consumer.RegexStored():
            return f"{record.regex} = {','.join(record.topics) or 'nothing'}"
        case consumer.RegexDeleted():
            return record.regex
        case consumer.GroupEpochDeleted() | consumer.TargetEpochDeleted():
            return record.group_id
        case consumer.ConsumerMemberDeleted() | consumer.TargetDeleted() | consumer.CurrentDeleted():
            return record.member_id


def describe_member(record: consumer.ConsumerMemberStored) -> str:
    words = [record.member_id, ",".join(record.topic_names) or "no topics"]
    words += [f"regex={record.topic_regex}"] if record.topic_regex else []
    words += [f"instance={record.instance_id}"] if record.instance_id else []
    words += [f"assignor={record.server_assignor}"] if record.server_assignor else []
    words += ["classic"] if record.classic else []
    return " ".join(words)


def topic_of(topic_id: bytes) -> str:
    """The name that a story's topic id was made of; one that was made anew has a number."""
    life = topic_id[15]
    return topic_id[:15].rstrip(b"\0").decode() + (f"'{life}" if life else "")


def cells(shares: consumer.Shares | consumer.Epochs) -> str:
    named = sorted((topic_of(topic), sorted(partitions)) for topic, partitions in shares.items())
    return ",".join(f"{topic}-{partition}" for topic, partitions in named for partition in partitions) or "nothing"


def describe_entry(entry: RebalanceEntry) -> str:
    return (
        headline(entry)
        + "".join(
            f" {move.topic}-{move.partition}:{move.source or 'nobody'}>{move.target or 'nobody'}"
            for move in entry.moves
        )
        + positions(entry)
    )


def positions(entry: RebalanceEntry) -> str:
    told = "".join(f" {c.topic}-{c.partition}={c.before}>{c.after}" for c in entry.positions)
    return told + (f" and {entry.more_positions} more" if entry.more_positions else "")


def headline(entry: RebalanceEntry) -> str:
    culprit = f" by {entry.culprit}" if entry.culprit else ""
    generations = f"generation {entry.previous_generation}>{entry.generation}"
    return f"#{entry.number} {entry.cause.name}{culprit} {generations} {entry.outcome.name.lower()}"


def share(blob: bytes) -> str:
    return ",".join(f"{topic}-{p}" for topic, ps in sorted(assignment_of(blob).items()) for p in ps) or "nothing"


def describe_word(reply: effects.PushReply | effects.HelloReply) -> str:
    """What a session stream says."""
    if isinstance(reply, effects.HelloReply):
        return code(reply.code) if reply.code else f"welcome: a heartbeat every {reply.heartbeat_interval_ms}ms"
    if reply.crossed:
        return "left aside: it crossed what was pushed"
    return code(reply.code) if reply.consumer is None else describe_beat(reply.consumer)


def describe_reply(reply: effects.Reply) -> str:
    match reply:
        case effects.JoinReply():
            return describe_join(reply)
        case effects.SyncReply():
            return code(reply.code) if reply.code else share(reply.assignment)
        case effects.LeaveReply():
            return (
                code(reply.code)
                if reply.code
                else ", ".join(f"{m.member_id or m.group_instance_id} {code(m.code)}" for m in reply.members)
            )
        case effects.OffsetCommitReply() | effects.OffsetDeleteReply() | TxnOffsetCommitReply():
            refused = [f"{topic}-{p} {code(why)}" for (topic, p), why in sorted(reply.partitions.items()) if why]
            return " ".join([code(reply.code), *refused])
        case TxnEndedReply():
            return code(reply.code)
        case effects.OffsetFetchReply():
            found = [
                f"{t}-{p} {code(reply.refused[t, p])}"
                if (t, p) in reply.refused
                else f"{t}-{p}={'none' if v is None else v.offset}"
                for (t, p), v in sorted(reply.offsets.items())
            ]
            return " ".join(found) or "no offsets"
        case effects.DescribeReply():
            return code(reply.code) if reply.code else describe_group(reply)
        case effects.ConsumerHeartbeatReply():
            return describe_beat(reply)
        case effects.PushReply() | effects.HelloReply():
            return describe_word(reply)
        case effects.DescribeConsumerReply():
            return code(reply.code) if reply.code else describe_consumer_group(reply)
        case effects.ListReply():
            return ", ".join(f"{g.group_id} {g.state} {g.group_type}" for g in reply.groups) or "no groups"
        case effects.ExplainReply():
            told = [*map(explained, reply.entries), *map(describe_stall, reply.stalls)]
            return code(reply.code) if reply.code else "\n".join(told) or "nothing"
        case effects.ClaimFenceReply() | effects.HoldsReply() | CanaryReply():
            return describe_control_reply(reply)
        case effects.SettingsReply():
            values = json.dumps(dict(reply.values))
            return f"{code(reply.code)} {reply.message}" if reply.code else f"version={reply.version} {values}"
        case _:
            return code(reply.code)


def describe_control_reply(reply: effects.ClaimFenceReply | effects.HoldsReply | CanaryReply) -> str:
    if isinstance(reply, effects.ClaimFenceReply):
        return describe_claim(reply)
    return describe_held(reply) if isinstance(reply, effects.HoldsReply) else describe_trial(reply)


def describe_held(reply: effects.HoldsReply) -> str:
    if reply.code:
        return f"{code(reply.code)} {reply.message}"
    left = f" draining={','.join(map(str, reply.draining))}" if any(reply.draining) else ""
    said = f"{reply.sentence}\n  " if reply.sentence else ""
    return f"{said}{describe_holds(reply.holds) if reply.holds else 'nothing is held'}{left}"


def describe_trial(reply: CanaryReply) -> str:
    if reply.code:
        return f"{code(reply.code)} {reply.message}"
    if reply.canary is None:
        return "no canary"
    canary, seen = reply.canary, reply.canary.baseline
    guards = [f"  {guard_text(guard)}: {reply.idle.get(guard_text(guard), 'counts')}" for guard in canary.guards]
    baseline = (
        f"  before, {canary.former}: {seen.rebalances} rebalances in {seen.span_ms}ms, {seen.moves:g} moves, "
        f"{seen.unowned_ms:g}ms unowned in {seen.settled}; lag {seen.lag:g} in {seen.lag_span_ms}ms"
    )
    return "\n".join([describe_canary(canary), baseline, *guards])


def describe_stall(stall: Stall) -> str:
    return f"the node stood still for {stall.stalled_ms}ms until {stall.ended_at_ms}ms"


TOLD_MS = Limits().consumer_heartbeat_interval_ms


def describe_beat(reply: effects.ConsumerHeartbeatReply) -> str:
    if reply.code:
        return code(reply.code)
    interval_ms = reply.heartbeat_interval_ms
    again = f" again in {interval_ms}ms" if interval_ms not in (0, TOLD_MS) else ""
    has = "" if reply.assignment is None else f" has {cells(reply.assignment)}"
    told = f"epoch={reply.member_epoch}{again}{has}"
    heirs = f", heirs are ready for {cells(reply.heirs_ready)}" if reply.heirs_ready else ""
    return told + heirs


def describe_consumer_group(reply: effects.DescribeConsumerReply) -> str:
    waiting = (
        f" waiting for {','.join(reply.waiting_for)} until {reply.waiting_until_ms}ms" if reply.waiting_for else ""
    )
    lines = [f"{reply.state} epoch={reply.epoch} target={reply.target_epoch} {reply.assignor}{waiting}"]
    for member in reply.members:
        kind = " classic" if member.classic else ""
        instance = f" instance={member.instance_id}" if member.instance_id else ""
        revoking = f" revoking {cells(member.revoking)}" if member.revoking else ""
        lines.append(
            f"  {member.member_id}{instance}{kind} epoch={member.epoch} {member.state}"
            f" {cells(member.assigned)}{revoking} target {cells(member.target)}"
        )
    return "\n".join(lines)


def describe_join(reply: effects.JoinReply) -> str:
    if reply.code is ErrorCode.MEMBER_ID_REQUIRED:
        return f"MEMBER_ID_REQUIRED {reply.member_id}"
    if reply.code:
        return code(reply.code) + (f" member={reply.member_id}" if reply.member_id else "")
    if reply.leader == reply.member_id:
        role = f"leader of ({','.join(member.member_id for member in reply.members)})"
    else:
        role = f"follower of {reply.leader or 'nobody'}"
    skip = " skip_assignment" if reply.skip_assignment else ""
    known = f" knows {reply.leader_state}" if reply.leader_state else ""
    delay = "" if reply.scheduled_delay_ms is None else f" delay left {reply.scheduled_delay_ms}ms"
    why = f" {reply.cause.name}" if reply.cause is Cause.STATIC_MEMBER_REPLACED else ""
    return f"generation={reply.generation} {reply.protocol_name} {role}{skip}{known}{delay}{why}"


def describe_group(reply: effects.DescribeReply) -> str:
    waiting = (
        f" waiting for {','.join(reply.waiting_for)} until {reply.waiting_until_ms}ms" if reply.waiting_for else ""
    )
    shares = "".join(f" {member.member_id}={share(member.assignment)}" for member in reply.members)
    protocol = "".join(f" {word}" for word in (reply.protocol_type, reply.protocol_name) if word)
    leader = f" leader={reply.leader}" if reply.leader else ""
    planned = f" set: {reply.planned_by.assignor}" if reply.planned_by.by_setting else ""
    kept_out = f"\n  {reply.planned_by.kept_out}" if reply.planned_by.kept_out else ""
    return f"{reply.state} generation={reply.generation}{protocol}{leader}{planned}{waiting}{shares}{kept_out}"


def waited(phase: RebalancePhase) -> str:
    """The members that a phase waited for, and how that ended; of phases without that, the ids alone."""
    if not phase.waits:
        return ",".join(phase.waited_for)
    return ", ".join(f"{wait.member_id} {wait.came.name.lower()} {wait.after_ms}ms" for wait in phase.waits)


def explained(entry: RebalanceEntry) -> str:
    """A paragraph: the head line, then one line for each thing the entry knows."""
    lines = [f"  {headline(entry)}", f"    {entry.detail}"]
    if entry.certainty is Certainty.INFERRED:
        lines.append(f"    inferred: {entry.evidence}")
    elif entry.certainty is Certainty.UNKNOWN:
        lines.append("    the cause is unknown")
    lines += [f"    also, at {each.at_ms}ms: {each.detail}" for each in entry.triggers]
    lines += [f"    also: {detail}" for detail in entry.also if detail not in {each.detail for each in entry.triggers}]
    lines += [
        f"    {each.member_id} was {each.previous_id}, away {each.away_ms}ms ({each.how})"
        for each in entry.incarnations
    ]
    lines += [
        f"    {late.member_id} still read {late.topic} {','.join(map(str, late.partitions))} after {late.after_ms}ms "
        f"({late.certainty.name.lower()})"
        for late in entry.late_fetches
    ]
    lines += [f"    topic {c.topic} {c.kind.name.lower()} {c.before}>{c.after} at {c.at_ms}ms" for c in entry.topics]
    lines += [f"    {phase.name} {phase.duration_ms}ms ({waited(phase)})" for phase in entry.phases]
    lines += [
        f"    {move.topic}-{move.partition} {move.source or 'nobody'}>{move.target or 'nobody'} "
        f"{move.unowned_ms}ms: {move.why}"
        for move in entry.moves
    ]
    if entry.snapshot_source:
        lines.append(f"    snapshot {entry.snapshot_source}")
    lines += [f"    beside: {describe_score(score)}" for score in entry.shadows]
    return "\n".join([*lines, f"    {entry.unowned_partition_ms} partition-ms unowned"])


def code(value: ErrorCode) -> str:
    return "ok" if value is ErrorCode.NONE else value.name
