"""The words in which both doors refuse, and in which they name whoever asked."""

import json
from collections.abc import Callable

from muster.assignors.api import JsonValue
from muster.coordinator.edge.limits import MAX_SETTING_CHARS, describe_too_long
from muster.coordinator.errors import ErrorCode


def error_sentence(code: ErrorCode, message: str = "") -> str:
    """What the client reads beside the number; empty without an error."""
    return "" if code is ErrorCode.NONE else message or code.meaning


def describe_failure(reference: str) -> str:
    """What is told of an unexpected failure: a reference into the node's log, and nothing of the inside."""
    return f"the node failed unexpectedly; its log has the details under reference {reference}"


def name_operator(host: str, reason: str = "") -> str:
    """Whoever changed a group from outside, as the ledger names him.

    >>> name_operator("10.0.0.7"), name_operator("10.0.0.7", "a stuck worker")
    ('operator at 10.0.0.7', 'operator at 10.0.0.7 (a stuck worker)')
    """
    return f"operator at {host} ({reason})" if reason else f"operator at {host}"


def parse_json_setting(name: str, text: str, refusal: Callable[[str], Exception]) -> JsonValue:
    """The value of a setting that came as JSON. Raises what `refusal` makes of the words if it is too long, or none."""
    if len(text) > MAX_SETTING_CHARS:
        raise refusal(describe_too_long(name, len(text), MAX_SETTING_CHARS))
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{name} is not JSON ({error}); expected a JSON value, such as {{}}") from None
    return found
