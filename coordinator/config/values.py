"""Bounds and kinds of value that several rooms share."""

from collections.abc import Callable, Iterable
from typing import Final, NewType

from muster.assignors.registry import BUILT_IN, resolve
from muster.assignors.shield import is_ours

MAX_SHORT = 2**15 - 1
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
DAY_MS = 86_400_000

SASL_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
"""How somebody may show who they are: clients to this node, this node to a Kafka."""

AssignorNames = NewType("AssignorNames", str)
"""Separated by commas."""

PrincipalNames = NewType("PrincipalNames", str)
"""Separated by semicolons, since a distinguished name has commas."""

FileText = NewType("FileText", str)
"""The path of a file; empty for none."""


def validated_by(read: Callable[[str], object]) -> Callable[[str], str]:
    """A validator: the value again if it is empty, or `read` makes sense of it; what that raises otherwise."""

    def validate(value: str) -> str:
        if value:
            read(value)
        return value

    return validate


def check_assignor_names(names: AssignorNames) -> AssignorNames:
    """The names again. Raises ValueError when one is no assignor, or two are of one name."""
    if not split_list(names):
        raise ValueError("name an assignor or more")
    assignor_words_by_name(split_list(names))
    return names


def assignor_words_by_name(words: Iterable[str]) -> dict[str, str]:
    """By the name of each assignor the word that finds it. Raises ValueError."""
    found: dict[str, str] = {}
    for word in words:
        assignor = resolve(word)
        if assignor.name in BUILT_IN and not is_ours(assignor):
            raise ValueError(f"{word!r} calls itself {assignor.name!r}, which is built in; give its class another name")
        if found.setdefault(assignor.name, word) != word and not is_ours(assignor):
            raise ValueError(f"{word!r} and {found[assignor.name]!r} call themselves {assignor.name!r}; rename one")
    return found


def split_list(text: str) -> tuple[str, ...]:
    """What a list by commas names.

    >>> split_list("range, lag,")
    ('range', 'lag')
    """
    return tuple(word.strip() for word in text.split(",") if word.strip())
