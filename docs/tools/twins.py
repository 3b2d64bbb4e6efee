"""What the docstring tool is told of ours.

Methods of the synchronous clients are made of their asyncio twins (`position = waiting(AsyncConsumer.position)`). A
tool that reads source sees attributes there; it is shown the methods that they are. Examples in docstrings become
blocks of code.
"""

from typing import Any

import griffe

from docs.tools.examples import fenced

VALUES = ("client.types", "client.described")
CLIENTS = ("consumer", "producer", "worker", "admin")
WRAPPERS = ("waiting", "same", "iterating")


class Twins(griffe.Extension):
    """Methods instead of attributes, and examples as code."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        if pkg.name != "muster":
            return
        for name in CLIENTS:
            module = pkg[f"client.sync.{name}"]
            for client in module.classes.values():
                add_methods(client)
        for name in VALUES:
            for value in pkg[name].classes.values():
                add_signature(value)
        show_examples(pkg)


def add_methods(client: griffe.Class) -> None:
    for name, made in list(client.members.items()):
        call = made.value if isinstance(made, griffe.Attribute) else None
        if isinstance(call, griffe.ExprCall) and str(call.function) in WRAPPERS:
            (argument,) = call.arguments
            client.set_member(name, method_of(client, made, str(argument)))


def add_signature(value: griffe.Class) -> None:
    """How a named tuple is made, which the tool knows of dataclasses only."""
    if "NamedTuple" in map(str, value.bases):
        fields = [field for field in value.attributes.values() if "property" not in field.labels]
        made = griffe.Function("__init__", parameters=griffe.Parameters(griffe.Parameter("self")))
        for field in fields:
            kind = griffe.ParameterKind.positional_or_keyword
            made.parameters.add(
                griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
            )
        value.set_member("__init__", made)


def method_of(client: griffe.Class, made: griffe.Object | griffe.Alias, twin: str) -> griffe.Function:
    """The twin's method, waited for: its parameters, docstring and what it returns."""
    owner, _, method = twin.partition(".")
    source = client.module[owner].final_target[method]
    returns = source.returns
    if isinstance(returns, griffe.ExprSubscript) and str(returns.left) == "AsyncIterator":
        returns = griffe.ExprSubscript(griffe.ExprName("Iterator", parent=client.module), returns.slice)
    shown = griffe.Function(
        made.name, parameters=source.parameters, returns=returns, lineno=made.lineno, endlineno=made.endlineno
    )
    if source.docstring is not None:
        shown.docstring = griffe.Docstring(source.docstring.value, parent=shown)
    return shown


def show_examples(thing: griffe.Object) -> None:
    """Examples of this object and all below it, between fences."""
    if thing.docstring is not None:
        thing.docstring.value = fenced(thing.docstring.value)
    for member in thing.members.values():
        if not isinstance(member, griffe.Alias):
            show_examples(member)
