"""The fields of the ledger's JSON, from the types that are written."""

import ast
import dataclasses
import inspect
import textwrap
import types
from enum import IntEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from docs.tools import contracts
from docs.tools.tables import code, table
from muster.coordinator.core.model import types as core
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    FurtherTrigger,
    Incarnation,
    LateFetch,
    MemberPlan,
    Outcome,
    PartitionMove,
    PhaseWait,
    PositionChange,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
    Score,
    Settlement,
    Stall,
    TopicChange,
    TopicChangeKind,
    WaitEnd,
)

SHOWN = {
    RebalanceEntry: "Rebalance",
    FurtherTrigger: "FurtherTrigger",
    TopicChange: "TopicChange",
    Incarnation: "Incarnation",
    LateFetch: "LateFetch",
    RebalancePhase: "RebalancePhase",
    PhaseWait: "PhaseWait",
    MemberPlan: "MemberPlan",
    PartitionMove: "PartitionMove",
    PositionChange: "PositionChange",
    Score: "PlanScore",
    Settlement: "",
    Stall: "NodeStall",
}
"""What may be in a value, and the message by which gRPC tells the same: its comments hold for both."""


NUMBERED = (Cause, Outcome, Certainty, RebalanceSource, WaitEnd, TopicChangeKind)
"""Enums that are written as numbers, each with a table of its own."""


def fields() -> str:
    """A part for each object that may be in a value."""
    return "\n\n".join(f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{rows(kind)}" for kind in SHOWN) + "\n"


def rows(kind: type) -> str:
    said, hints = contracts.field_comments("ledger", SHOWN[kind]) | remarks(kind), get_type_hints(kind, vars(core))
    made = [[code(field.name), told(hints[field.name]), said.get(field.name, "")] for field in dataclasses.fields(kind)]
    return table(["field", "JSON", ""], made)


def remarks(kind: type) -> dict[str, str]:
    """The string behind each field of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, remark in zip(definition.body, definition.body[1:], strict=False):
        match field, remark:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def told(hint: Any) -> str:
    """A type as the JSON that it becomes."""
    if hint in NUMBERED:
        return f"number: [{hint.__name__}](#{hint.__name__.lower()})"
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(told(each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return f"list of {told(inner[0])}"
        return "[" + ", ".join(told(each) for each in inner) + "]"
    return {str: "text", int: "number", float: "number", bool: "true or false", type(None): "null"}[hint]


def causes() -> str:
    return numbers(Cause)


def outcomes() -> str:
    return numbers(Outcome)


def certainties() -> str:
    return numbers(Certainty)


def sources() -> str:
    return numbers(RebalanceSource)


def wait_ends() -> str:
    return numbers(WaitEnd)


def topic_change_kinds() -> str:
    return numbers(TopicChangeKind)


def numbers(kind: type[IntEnum]) -> str:
    """The members of an enum with their numbers."""
    return table(["number", "name"], [[str(each.value), code(each.name)] for each in kind])
