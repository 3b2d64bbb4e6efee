"""What a request names, by the paths that the table of rights has."""

import re
from collections.abc import Iterator
from typing import Any, Final

PATH: Final = re.compile(r"[\w.]+(\[\w+\])?")


def is_path(of: str, request: Any) -> bool:
    """Whether this names fields of the request; what it is said in words otherwise is looked at by hand."""
    return bool(PATH.fullmatch(of)) and of.partition(".")[0].partition("[")[0] in request.fields_by_name


def is_field(of: str, request: Any) -> bool:
    """Whether it is a text of the request itself."""
    field = request.fields_by_name.get(of)
    return field is not None and field.type == field.TYPE_STRING and not field.is_repeated


def is_listed(of: str, request: Any) -> bool:
    """Whether its first field is there several times: rows, of which each may be refused for itself."""
    field = request.fields_by_name[of.partition(".")[0].partition("[")[0]]
    return bool(field.is_repeated) and "[" not in of


def names_at(message: Any, path: str) -> Iterator[str]:
    """The names there; empty ones name nothing.

    >>> from muster.storage.rpc.v1.broker_service_pb2 import DeleteTopicsRequest, FetchRequest, FetchTopic
    >>> list(names_at(FetchRequest(topics=[FetchTopic(topic="a"), FetchTopic(topic="b")]), "topics.topic"))
    ['a', 'b']
    >>> list(names_at(DeleteTopicsRequest(topic_names=["c", ""]), "topic_names"))
    ['c']
    """
    first, _, rest = path.partition(".")
    name, _, key = first.partition("[")
    found = getattr(message, name)
    if key:
        value = found.get(key.rstrip("]"), "")
        if value:
            yield value
        return
    for each in (found,) if isinstance(found, str) or hasattr(found, "DESCRIPTOR") else found:
        if rest:
            yield from names_at(each, rest)
        elif each:
            yield each
