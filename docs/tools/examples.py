"""Examples (`>>> 1 + 1`) stand in docstrings and pages as doctest reads them; here they become blocks of code."""

import re

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!```).+)*", re.MULTILINE)


def fenced(text: str) -> str:
    r"""
    >>> fenced("Adds.\n\n>>> 1 + 1\n2")
    'Adds.\n\n```pycon\n>>> 1 + 1\n2\n```'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
