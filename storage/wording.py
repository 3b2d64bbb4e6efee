"""What a setting allows, in words for people: taken from its field, so that words and checks cannot part."""

import errno
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo


def describe_allowed(field: FieldInfo) -> str:
    """Choices, or the kind of value and its bounds.

    >>> from pydantic import Field
    >>> describe_allowed(FieldInfo.from_annotated_attribute(int, Field(default=5, ge=1, le=9)))
    'a whole number from 1 to 9'
    """
    kind = without_none(field.annotation)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) or "nothing at all" for choice in get_args(kind))
    if kind is bool:
        return "true or false"
    if kind is str:
        if pattern := read_bound(field, "pattern"):
            return f"text that matches {pattern}"
        longest = read_bound(field, "max_length")
        return "text" if longest is None else f"text of at most {longest} characters"
    if kind not in (int, float):
        return "a JSON object"
    return describe_bounds(
        "a whole number" if kind is int else "a number", read_bound(field, "ge"), read_bound(field, "le")
    )


def describe_bounds(noun: str, low: Any, high: Any) -> str:
    if low is not None and high is not None:
        return f"{noun} from {low} to {high}"
    return noun if low is None else f"{noun}, at least {low}"


def read_bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(limit, name) for limit in field.metadata if hasattr(limit, name)), None)


def without_none(annotation: Any) -> Any:
    """`int` of `int | None`."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(annotation) and len(kinds) == 1 else annotation


def setting_as_text(value: object) -> str | None:
    """A setting's value as a properties file has it; None where it has none.

    >>> setting_as_text(True), setting_as_text(5), setting_as_text(None)
    ('true', '5', None)
    """
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_setting(settings: object, alias: str, name: str) -> str | None:
    """The same of a setting of a model, for anybody to see: what was read elsewhere is shown as it was written.

    A model that has such values tells them in `references`, by their dotted names.
    """
    written: str | None = getattr(settings, "references", {}).get(alias)
    return setting_as_text(getattr(settings, name)) if written is None else written


def is_secret(settings: object, alias: str, field: FieldInfo) -> bool:
    """Whether its value is to be seen by nobody."""
    return field.annotation is SecretStr or alias in getattr(settings, "references", {})


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def os_error_remedy(error: OSError) -> str:
    """What to do about what the operating system refused.

    >>> os_error_remedy(OSError(errno.ENOSPC, "No space left on device"))
    'free some space'
    >>> os_error_remedy(OSError(errno.EMFILE, "Too many open files"))
    'allow the process more open files (ulimit -n, LimitNOFILE)'
    """
    if error.errno in _FULL:
        return "free some space"
    if error.errno in _DESCRIPTORS:
        return "allow the process more open files (ulimit -n, LimitNOFILE)"
    if error.errno in _PERMISSION:
        return "let the node's user write there"
    return "mend the disk"
