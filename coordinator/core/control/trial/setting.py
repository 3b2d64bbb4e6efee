"""The setting `shadow.assignors`."""

from dataclasses import dataclass

from muster.assignors.api import JsonValue
from muster.coordinator.core.control.settings.setting import UNRECORDABLE, Change, Of, Setting, invalid, recordable
from muster.coordinator.core.control.settings.shapes import KafkaType, shown
from muster.coordinator.core.control.trial.candidates import FORM, Candidate, candidate_of, may_run, split
from muster.coordinator.core.types import Limits

MOST = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    """Assignors with their options, each once; as text with commas between them."""

    kafka_type = KafkaType.LIST
    allowed = f"up to {MOST} of {FORM}, with commas between them"

    def of_json(self, value: JsonValue, limits: Limits) -> tuple[Candidate, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise ValueError(f"is {shown(value)}; expected a list of {FORM}")
        if not 0 < len(value) <= MOST:
            raise ValueError(f"has {len(value)} assignors; expected {self.allowed}")
        found = tuple(candidate_of(str(word), limits) for word in value)
        words = [candidate.word for candidate in found]
        if len(set(words)) < len(words):
            raise ValueError(f"is {shown(value)}; expected each assignor with its options once")
        return found

    def of_text(self, text: str) -> JsonValue:
        return list(split(text))

    def text(self, value: JsonValue) -> str:
        return ",".join(str(word) for word in value) if isinstance(value, list | tuple) else str(value)


def check_candidates(value: tuple[Candidate, ...], change: Change) -> None:
    for candidate in value:
        if not recordable(dict(candidate.options)):
            raise invalid(f"{SHADOW_ASSIGNORS.name}: {candidate.name!r} has {UNRECORDABLE}")
        try:
            may_run(candidate, change.step.limits)
        except ValueError as error:
            raise invalid(f"{SHADOW_ASSIGNORS.name}: {error}") from None


NO_SHADOWS: tuple[Candidate, ...] = ()

SHADOW_ASSIGNORS = Setting(
    name="shadow.assignors",
    shape=Candidates(),
    default=NO_SHADOWS,
    groups=Of.EVERY,
    meaning="Assignors by which each decision of the group's plan is made again, beside it, to be compared.",
    check=check_candidates,
)
