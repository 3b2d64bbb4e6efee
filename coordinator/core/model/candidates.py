"""The word by which an operator names an assignor with its options: `lag-sticky`, or `lag-sticky{"move.budget": 5}`."""

import json
from collections.abc import Mapping
from dataclasses import field

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.plan import canonical_name, runnable_assignors
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.model.value import frozen_value

MAX_CHARACTERS = 4_096
"""Of one such word."""
FORM = """NAME or NAME{"option": value}"""


@frozen_value
class AssignorCandidate:
    """`name` is the assignor's own, whichever of its names was used."""

    name: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def word(self) -> str:
        return self.name + (json.dumps(dict(self.options), sort_keys=True) if self.options else "")


def candidate_of(word: str, limits: Limits) -> AssignorCandidate:
    """Read it. Raises ValueError, worded to follow what the value is of: "is ...; expected ...".

    >>> candidate_of('range{"a": 1}', Limits())
    AssignorCandidate(name='range', options={'a': 1})
    """
    if not 0 < len(word) <= MAX_CHARACTERS:
        raise ValueError(f"has a word of {len(word)} characters; expected {FORM} of at most {MAX_CHARACTERS}")
    name, brace, rest = word.partition("{")
    try:
        options = json.loads(brace + rest) if brace else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has {word!r}, whose options are no JSON ({error}); expected {FORM}") from None
    if not name.strip():
        raise ValueError(f"has {word!r}, which names no assignor; expected {FORM}")
    return AssignorCandidate(canonical_name(name.strip(), limits), options)


def check_may_run(candidate: AssignorCandidate, limits: Limits) -> None:
    """Refuse an assignor that this node does not offer: a request must not name code to be imported here.

    Raises ValueError, worded as those of `candidate_of`.
    """
    configured = (canonical_name(word, limits) for word in (*limits.consumer_assignors, *limits.remote_assignors))
    names = dict.fromkeys((*runnable_assignors(limits), *configured))
    if candidate.name not in names:
        raise ValueError(
            f"names {candidate.name!r}, which is no assignor that this coordinator runs; known here: {', '.join(names)}"
        )


def split_candidates(text: str) -> list[str]:
    """The words of a list with commas between them, those within braces aside.

    >>> split_candidates('lag, sticky{"a": 1, "b": {}},range')
    ['lag', 'sticky{"a": 1, "b": {}}', 'range']
    """
    words, depth, word = [], 0, ""
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth <= 0:
            words.append(word.strip())
            word = ""
        else:
            word += letter
    return [word for word in (*words, word.strip()) if word]
