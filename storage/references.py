"""Values that stand somewhere else: `${file:PATH:KEY}`, `${directory:PATH:FILE}` and `${env:NAME}` (KIP-297, KIP-421).

A properties file can be shown to anybody then: what it refers to is read when the program starts. Nothing here puts a
value that was read into words: not an error, not a repr.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
            raise BadReference(f"${{directory:{what}}}: {name!r} is no name of a file in {path}")
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
