"""How a setting is declared, read from text, and described.

A setting is one row of a model: its type with its limits, its default, one sentence. Its name is the field's, with
dots. Descriptions of allowed values are taken from the row, so that words and checks cannot diverge.

`${file:PATH:KEY}`, `${directory:PATH:FILE}` and `${env:NAME}` (KIP-297, KIP-421) let a properties file be shown to
anybody: what it refers to is read when the program starts. No error and no repr contains a value that was read.
"""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

# One row for each setting
# ------------------------

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

PositiveInt32 = Annotated[int, Field(ge=1, le=MAX_INT)]
NonNegativeInt32 = Annotated[int, Field(ge=0, le=MAX_INT)]
PositiveInt64 = Annotated[int, Field(ge=1, le=MAX_LONG)]
NonNegativeInt64 = Annotated[int, Field(ge=0, le=MAX_LONG)]


def to_dotted(name: str) -> str:
    """A setting's name, from its field's.

    >>> to_dotted("node_id")
    'node.id'
    """
    return name.replace("_", ".")


class SettingsModel(BaseModel):
    """A model whose fields are settings, each declared by `setting`."""

    model_config = ConfigDict(alias_generator=to_dotted)


def setting(default: Any, meaning: str, *, name: str | None = None, allowed: str | None = None, **more: Any) -> Any:
    """A setting's default (`...`: it must be given) and what it means, in one sentence.

    name: if it is not the field's with dots. allowed: what it takes, in words, if its type does not say it. more: what
    pydantic's `Field` takes.
    """
    if name is not None:
        more["alias"] = name
    if allowed is not None:
        more["json_schema_extra"] = {"allowed": allowed}
    return Field(default, description=meaning, **more)


# Values that stand somewhere else (KIP-297, KIP-421)
# ---------------------------------------------------

REFERENCE: Final = re.compile(r"\$\{(file|directory|env):([^}]*)\}")
MOST_BYTES: Final = 1 << 20
"""Of a file that is referred to."""


class BadReference(ValueError):
    """There is nothing to be had where a reference points to. The text names the place, and no value."""


class Resolved(str):
    """A value that was read elsewhere. `reference` is what was written; repr shows that."""

    reference: str

    def __new__(cls, value: str, reference: str) -> "Resolved":
        made = super().__new__(cls, value)
        made.reference = reference
        return made

    def __repr__(self) -> str:
        return repr(self.reference)


def resolve_references(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text, with what its references stand for in their places. Raises BadReference.

    >>> resolve_references("plain"), resolve_references("http://${env:HOST}:1", {"HOST": "me"}).upper()
    ('plain', 'HTTP://ME:1')
    >>> resolve_references("${env:HOST}", {"HOST": "me"})
    '${env:HOST}'
    """
    if "${" not in text:
        return text
    found = REFERENCE.sub(lambda match: look_up_reference(match[1], match[2], environment), text)
    return Resolved(found, text) if found != text or REFERENCE.search(text) else text


def look_up_reference(kind: str, what: str, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if what not in environment:
            raise BadReference(f"${{env:{what}}} is not in the environment; set {what}")
        return environment[what]
    path, colon, name = what.rpartition(":")
    if not (colon and path and name):
        example = "${file:/run/secrets/muster.properties:password}" if kind == "file" else "${directory:/run/secrets:x}"
        raise BadReference(f"${{{kind}:{what}}} names no {'key' if kind == 'file' else 'file'}; expected {example}")
    if kind == "directory":
        if "/" in name or name in (".", ".."):
            raise BadReference(f"${{directory:{what}}}: {name!r} is not a name of a file in {path}")
        return read_reference_file(Path(path) / name).rstrip("\r\n")
    return read_property(Path(path), name)


def read_property(file: Path, key: str) -> str:
    """Of a properties file: `key=value` lines."""
    for line in read_reference_file(file).splitlines():
        written = re.fullmatch(r"\s*([^=:\s]+)\s*[=:](.*)", line)
        if written and written[1] == key and not key.startswith(("#", "!")):
            return written[2].strip()
    raise BadReference(f"${{file:{file}:{key}}}: the file has no line {key}=...")


def read_reference_file(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadReference(f"{file} has more than {MOST_BYTES} bytes; expected a secret, or a few of them")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadReference(f"{file} cannot be read: {error.strerror or 'the system refused'}") from None
    except UnicodeDecodeError:
        raise BadReference(f"{file} is no UTF-8 text") from None


# What a setting allows, in words
# -------------------------------


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
