"""How long a name that is kept may be. How much a request lists, its decoder has checked (see `coordinator.edge`)."""

from muster.coordinator.edge.limits import MAX_NAME_CHARS, describe_too_long
from muster.coordinator.errors import CoordinatorError, ErrorCode


def check_length(field: str, value: str) -> str:
    """The value, if it can be stored. Raises CoordinatorError."""
    if len(value) > MAX_NAME_CHARS:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, describe_too_long(field, len(value)))
    return value


def check_optional_length(field: str, value: str | None) -> str | None:
    return None if value is None else check_length(field, value)
