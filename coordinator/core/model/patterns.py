"""Regular expressions over topic names, whoever wrote them: RE2 syntax, so that matching takes linear time."""

import re2

MAX_REGEX_CHARS = 4_096
MAX_REGEX_MEMORY = 1 << 20
"""Bytes that one compiled expression and its matching may take."""


def compile_pattern(regex: str) -> "re2._Regexp[str]":
    """The expression, ready to match. Raises ValueError saying what is wrong with it."""
    if len(regex) > MAX_REGEX_CHARS:
        raise ValueError(f"it has {len(regex)} characters; at most {MAX_REGEX_CHARS} are accepted")
    options = re2.Options()
    options.max_mem = MAX_REGEX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        why = error.args[0] if error.args else "unreadable"
        raise ValueError(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from error
