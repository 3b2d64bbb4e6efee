"""A name as one part of an address, and back. A group's name may have any character.

Browsers, proxies and `curl` take a part that is `.` or `..` for a folder and leave it out, however it is escaped
(https://url.spec.whatwg.org/#double-dot-path-segment): a group of such a name stands behind a `=`, which no other name
has unescaped.
"""

from typing import Final
from urllib.parse import quote, unquote

ESCAPED_FOLDERS: Final = {".": "=.", "..": "=.."}
UNESCAPED_FOLDERS: Final = {segment: name for name, segment in ESCAPED_FOLDERS.items()}


def segment_of(name: str) -> str:
    """
    >>> segment_of("a/b?<c>"), segment_of(".."), segment_of("=..")
    ('a%2Fb%3F%3Cc%3E', '=..', '%3D..')
    """
    return ESCAPED_FOLDERS.get(name) or quote(name, safe="")


def name_of(segment: str) -> str:
    """
    >>> name_of("a%2Fb%3F%3Cc%3E"), name_of("=.."), name_of("%3D..")
    ('a/b?<c>', '..', '=..')
    """
    return UNESCAPED_FOLDERS.get(segment) or unquote(segment)
