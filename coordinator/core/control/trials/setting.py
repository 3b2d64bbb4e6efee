"""The setting `shadow.assignors`."""

from dataclasses import dataclass

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.candidates import (
    FORM,
    AssignorCandidate,
    candidate_of,
    check_may_run,
    split_candidates,
)
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.settings.setting import (
    UNRECORDABLE,
    GroupScope,
    Setting,
    SettingsChange,
    invalid_setting,
    is_recordable,
)
from muster.coordinator.core.settings.shapes import KafkaType, shown_value

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
    meaning="Assignors by which each decision of the group's plan is made again, beside it, to be compared.",
    check=check_candidates,
)
