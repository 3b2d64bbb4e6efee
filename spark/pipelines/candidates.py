"""What competes in a backtest: an assignor with options, written as `lag-sticky[move.budget=3,min.gain=0.1]`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.assignors import registry
from muster.assignors.api import Assignor, JsonValue, Member, Snapshot
from muster.assignors.options import options_of
from muster.spark.assignor_deadline import DEADLINE_MS, run_in_time

OPENING, CLOSING = "[{(", "]})"


@dataclass(frozen=True, slots=True)
class BacktestCandidate:
    """`word` names an assignor as everywhere; `label` is how the results call it."""

    label: str
    word: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    def resolve(self) -> Assignor:
        return registry.resolve(self.word)


def parse_candidates(words: str | Sequence[str]) -> list[BacktestCandidate]:
    """The candidates of a comma-separated text or of a list of such texts, each once, in order.

    Raises ValueError, which names the candidate, and UnknownAssignor. Options are tried on a small group at once: a
    backtest must not find out after an hour.

    >>> [c.label for c in parse_candidates("range, lag-sticky[move.budget=3]")]
    ['range', 'lag-sticky[move.budget=3]']
    """
    texts = [words] if isinstance(words, str) else list(words)
    found = [parse_candidate(part) for text in texts for part in split_candidates(text) if part.strip()]
    if not found:
        raise ValueError(f"no assignor was named; name one or more of: {', '.join(registry.known())}")
    return list({one.label: one for one in found}.values())


def parse_candidate(text: str) -> BacktestCandidate:
    word, bracket, rest = text.strip().partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError(f"{text.strip()!r} ends without ']'; expected assignor[option=value,...]")
    options = dict(parse_option(part, text) for part in split_candidates(rest[:-1]) if part.strip()) if bracket else {}
    assignor = registry.resolve(word)
    known = options_of(assignor.name) if assignor.name in registry.BUILT_IN else None
    for name in options:
        if known is not None and name not in known:
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ValueError(f"{text.strip()!r}: {assignor.name} has no option {name!r}; {has}")
    # What people call it in their configuration is resolved, so that the same assignor has one name in the results.
    name = assignor.name if word.strip() not in registry.known() and ":" not in word else word.strip()
    settings = ",".join(f"{key}={format_value(value)}" for key, value in sorted(options.items()))
    chosen = BacktestCandidate(f"{name}[{settings}]" if settings else name, name, options)
    try_candidate(chosen)
    return chosen


def try_candidate(chosen: BacktestCandidate) -> None:
    """Let it decide a small group; AssignorError when it cannot, or not in time."""
    members = [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",))]
    snapshot = Snapshot({"t": 3}, members, {"t": [5, 1, 1]}, None, chosen.word, chosen.options)
    run_in_time(chosen.resolve(), snapshot, DEADLINE_MS, "that was three partitions for two members; mend it")


def parse_option(part: str, text: str) -> tuple[str, JsonValue]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text.strip()!r}: {part.strip()!r} is no option; expected assignor[option=value,...]")
    return name.strip(), parse_value(value.strip())


def parse_value(value: str) -> JsonValue:
    """JSON where it is JSON, text otherwise."""
    try:
        found: JsonValue = json.loads(value)
    except ValueError:
        return value
    return found


def format_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def split_candidates(text: str) -> list[str]:
    """At the commas outside of brackets and quotes.

    >>> split_candidates('range,lag-sticky[a=1,b={"x":2}]')
    ['range', 'lag-sticky[a=1,b={"x":2}]']
    """
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += (letter in OPENING) - (letter in CLOSING) if not quoted else 0
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
