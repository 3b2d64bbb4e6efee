"""Shadow assignors: each decision made again by other assignors, recorded next to the ledger, and never acted upon.

A group's shadows are planned off the event loop, one decision at a time; of those that come meanwhile the newest
waits and the others are skipped. Their scores are a record next to the entry (`RebalanceShadowed`); after a crash
they are not made up for. Where the setting `shadow.assignors` is not set, a decision costs one look at the settings.
"""

from dataclasses import dataclass

from muster.assignors.api import JsonValue
from muster.coordinator.core.groups.state import ShadowRun, Step
from muster.coordinator.core.model.events import Shadowed
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import RebalanceShadowed
from muster.coordinator.core.model.shadow_scoring import (
    FORM,
    AssignorCandidate,
    ShadowRequest,
    all_failed,
    candidate_of,
    check_may_run,
    split_candidates,
)
from muster.coordinator.core.model.types import Limits, Outcome, RebalanceEntry, Score
from muster.coordinator.core.settings.setting import (
    UNRECORDABLE,
    GroupScope,
    Setting,
    SettingsChange,
    invalid_setting,
    is_recordable,
)
from muster.coordinator.core.settings.shapes import KafkaType, shown_value

# The setting `shadow.assignors`
# ------------------------------

MOST = 4


@dataclass(frozen=True, slots=True)
class CandidateList:
    """Assignors with their options, each once; as text with commas between them."""

    kafka_type = KafkaType.LIST
    allowed = f"up to {MOST} of {FORM}, with commas between them"

    def of_json(self, value: JsonValue, limits: Limits) -> tuple[AssignorCandidate, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise ValueError(f"is {shown_value(value)}; expected a list of {FORM}")
        if not 0 < len(value) <= MOST:
            raise ValueError(f"has {len(value)} assignors; expected {self.allowed}")
        found = tuple(candidate_of(str(word), limits) for word in value)
        words = [candidate.word for candidate in found]
        if len(set(words)) < len(words):
            raise ValueError(f"is {shown_value(value)}; expected each assignor with its options once")
        return found

    def of_text(self, text: str) -> JsonValue:
        return list(split_candidates(text))

    def text(self, value: JsonValue) -> str:
        return ",".join(str(word) for word in value) if isinstance(value, list | tuple) else str(value)


def check_candidates(value: tuple[AssignorCandidate, ...], change: SettingsChange) -> None:
    for candidate in value:
        if not is_recordable(dict(candidate.options)):
            raise invalid_setting(f"{SHADOW_ASSIGNORS.name}: {candidate.name!r} has {UNRECORDABLE}")
        try:
            check_may_run(candidate, change.step.limits)
        except ValueError as error:
            raise invalid_setting(f"{SHADOW_ASSIGNORS.name}: {error}") from None


NO_SHADOWS: tuple[AssignorCandidate, ...] = ()

SHADOW_ASSIGNORS = Setting(
    name="shadow.assignors",
    shape=CandidateList(),
    default=NO_SHADOWS,
    groups=GroupScope.EVERY,
    meaning="Assignors that repeat each decision of the group's assignor without effect, for comparison.",
    check=check_candidates,
)


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
