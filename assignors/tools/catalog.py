"""The assignors known here, for `muster assignor list` and `show`, and a package to start a new one from."""

from __future__ import annotations

import inspect
import keyword
import re
from dataclasses import dataclass

from muster.assignors import registry
from muster.assignors.api import AssignorError
from muster.assignors.options import options_of

# `muster assignor list` and `show`
# ---------------------------------


@dataclass(frozen=True, slots=True)
class CatalogAssignor:
    """One assignor; `problem` says why an installed plugin cannot be used, and is empty otherwise."""

    name: str
    protocol: str
    source: str
    summary: str
    description: str
    options: dict[str, str]
    aliases: tuple[str, ...]
    problem: str = ""


def list_assignors() -> list[CatalogAssignor]:
    """Every assignor known here, broken plugins included: built-in ones first."""
    entries: list[CatalogAssignor] = []
    for word in registry.known():
        try:
            entries.append(describe_assignor(word))
        except AssignorError as error:
            entries.append(CatalogAssignor(word, "", "plugin", "", "", {}, (), str(error)))
    return entries


def describe_assignor(word: str) -> CatalogAssignor:
    """All there is to know about the assignor that `word` names; AssignorError when it cannot be had."""
    assignor = registry.resolve(word)
    text = inspect.getdoc(type(assignor)) or ""
    prose = text.split("\n>>> ")[0].strip()
    built_in = assignor.name in registry.BUILT_IN
    place = f"{type(assignor).__module__}:{type(assignor).__qualname__}"
    return CatalogAssignor(
        name=assignor.name,
        protocol=assignor.protocol.value,
        source="built in" if built_in else place,
        summary=" ".join(prose.split("\n\n")[0].split()),
        description=prose,
        options=options_of(assignor.name) if built_in else {},
        aliases=registry.aliases(assignor.name) if built_in else (),
    )


# `muster assignor new`
# ---------------------

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME = 60


def scaffold(name: str) -> dict[str, str]:
    """{relative path: text} of a package whose assignor is called `name` (lower case, words joined by "-").

    ValueError says what is wrong with a name, one that is taken included.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ValueError(
            f"{name!r} cannot name an assignor: use lower-case words joined by '-', at most {MAX_NAME} characters"
        )
    if name in registry.known():
        raise ValueError(f"{name!r} is taken; known here: {', '.join(registry.known())}")
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        raise ValueError(f"{name!r} is a word of Python's own; choose another name")
    words = {"name": name, "module": module, "cls": "".join(map(str.capitalize, name.split("-"))) + "Assignor"}
    files = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"{module}.py": _MODULE,
        f"test_{module}.py": _TEST,
    }
    return {path: text.format(**words) for path, text in files.items()}


_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "muster-assignor-{name}"
version = "0.1.0"
description = "The {name} partition assignor for Muster"
requires-python = ">=3.11"
dependencies = ["muster-groups"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."muster.assignors"]
{name} = "{module}:{cls}"

[tool.setuptools]
py-modules = ["{module}"]
"""

_README = """\
# {name}

A partition assignor for Muster.

    pip install -e '.[test]'
    pytest
    muster assignor test {name}

Use it: `partition.assignment.strategy={name}`.
"""

_MODULE = '''\
"""The {name} assignor."""

from __future__ import annotations

from muster.assignors.api import Plan, RebalanceProtocol, Snapshot


class {cls}:
    """Deal the partitions of each topic to its subscribers in turn: the place to start from."""

    name = "{name}"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan:
        plan: dict[str, dict[str, list[int]]] = {{member.id: {{}} for member in snapshot.members}}
        for topic in snapshot.subscribed_topics():
            takers = snapshot.subscribers(topic)
            for partition in snapshot.partitions(topic):
                taker = takers[partition % len(takers)]
                plan[taker].setdefault(topic, []).append(partition)
        return plan
'''

_TEST = '''\
"""Every assignor must pass the compliance suite; what is special about this one belongs below it."""

from muster.assignors.api import Member, Snapshot
from muster.assignors.compliance import AssignorCompliance
from muster.assignors.run import run
from {module} import {cls}


class Test{cls}(AssignorCompliance):
    assignor = {cls}()


def test_deals_in_turn():
    group = Snapshot({{"t": 3}}, [Member("a", ("t",)), Member("b", ("t",))])
    assert run({cls}(), group).to_dict() == {{"a": {{"t": [0, 2]}}, "b": {{"t": [1]}}}}
'''
