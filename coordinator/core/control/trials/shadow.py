"""Shadow assignors: each decision made again by others, beside the ledger, and acted upon by nobody.

A group's shadows are planned off the loop, one decision at a time; of those that come meanwhile the newest waits and
the others go without. Their scores are a record beside the entry (`RebalanceShadowed`), or there is none: after a crash
nobody makes up for them. Where the setting `shadow.assignors` is not set, a decision costs one look at the settings.
"""

from muster.coordinator.core.control.trials.setting import SHADOW_ASSIGNORS
from muster.coordinator.core.groups.state import ShadowRun, Step
from muster.coordinator.core.model.core_records import RebalanceShadowed
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.scoring import ShadowRequest, all_failed
from muster.coordinator.core.model.trial_events import Shadowed
from muster.coordinator.core.model.types import Outcome, RebalanceEntry, Score


def score_with_shadows(group_id: str, entry: RebalanceEntry, step: Step) -> None:
    """The entry has been kept: have it decided by the group's shadows as well, now or after the one under way."""
    candidates = SHADOW_ASSIGNORS.of(step.state, group_id)
    if not candidates or entry.outcome is not Outcome.COMPLETED:
        return
    request = ShadowRequest(group_id, step.tick(), candidates, entry, step.limits.plugins)
    if not entry.snapshot_json:
        keep_shadow_scores(group_id, entry.number, all_failed(request, why_without(entry)), step)
        return
    kept = step.state.ledgers[group_id].entries[entry.number]
    under_way = step.state.shadowing.get(group_id)
    if under_way is not None:
        under_way.waiting = (request, kept)
    else:
        begin_shadow_run(request, kept, step)


def begin_shadow_run(request: ShadowRequest, kept: RebalanceEntry, step: Step) -> None:
    step.state.shadowing[request.group_id] = ShadowRun(request.ticket, kept)
    step.out.plans.append(request)


def take_shadow_scores(event: Shadowed, step: Step) -> None:
    """The scores go beside their entry, if it is still kept; then the decision that waits has its turn."""
    done = step.state.shadowing.get(event.group_id)
    if done is None or done.ticket != event.ticket:
        return
    del step.state.shadowing[event.group_id]
    ledger = step.state.ledgers.get(event.group_id)
    # Another group of this id may have an entry of this number.
    if ledger is not None and ledger.entries.get(done.entry.number) is done.entry:
        keep_shadow_scores(event.group_id, done.entry.number, event.scores, step)
    if done.waiting is not None:
        begin_shadow_run(*done.waiting, step)


def keep_shadow_scores(group_id: str, number: int, scores: tuple[Score, ...], step: Step) -> None:
    step.keep(RebalanceShadowed(group_id, number, scores))


def why_without(entry: RebalanceEntry) -> str:
    if entry.snapshot_source:
        return f"there is no snapshot to plan from: {entry.snapshot_source}"
    if entry.protocol_type != CONSUMER:
        return f"what members of the protocol {entry.protocol_type!r} tell each other cannot be read"
    return "the members' subscriptions cannot be read"
