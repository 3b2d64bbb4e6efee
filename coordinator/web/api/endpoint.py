"""What an endpoint of the API is: its address, its parameters, the type of its answer, and its handler.

Routes, checks of every parameter and the OpenAPI document are made from the endpoints.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.http.node_port import HttpRefusal

PREFIX: Final = "/api/v1"

Model = TypeVar("Model", bound=BaseModel)

MOST_ROWS: Final = 100_000
"""That one answer has, at most."""

MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter of the query: a whole number, a switch, or a word. `many`: it may be given several times."""

    name: str
    meaning: str
    kind: type[int] | type[bool] | type[str] = str
    default: Any = None
    least: int = 0
    most: int = MOST_ROWS
    many: bool = False
    words: tuple[str, ...] = ()
    """The words that are taken, if not any."""

    def read(self, texts: list[str]) -> Any:
        """Raises Refused, which says what was expected."""
        if not texts:
            return () if self.many else self.default
        if self.many:
            return tuple(self._one(text) for text in texts)
        if len(texts) > 1:
            raise self._refused(", ".join(texts), "one value")
        return self._one(texts[0])

    def _one(self, text: str) -> Any:
        if self.kind is bool:
            if text not in ("true", "false"):
                raise self._refused(text, "true or false")
            return text == "true"
        if self.kind is int:
            number = int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else -1
            if not self.least <= number <= self.most:
                raise self._refused(text, f"a whole number from {self.least} to {self.most}")
            return number
        if self.words and text not in self.words:
            raise self._refused(text, f"one of {', '.join(self.words)}")
        return text

    def _refused(self, text: str, expected: str) -> HttpRefusal:
        return HttpRefusal(
            400, "MALFORMED_REQUEST", f"{self.name} is {text[:100]!r}; expected {expected}", field=self.name
        )


LIMIT: Final = QueryParameter("limit", "How many rows are answered, at most.", int, 10_000, least=1)
OFFSET: Final = QueryParameter("offset", "How many rows are passed over before the first one.", int, 0, most=2**31)


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """What a request says, looked at: names of its path, and its parameters, each with a value."""

    names: Mapping[str, str]
    values: Mapping[str, Any]
    path: str
    body: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


Handler = Callable[[NodeQueries, EndpointRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One line of the API. `path` is below PREFIX, with `{group}` and the like; `answer` is the type of the answer."""

    path: str
    summary: str
    answer: Any
    handler: Handler
    queries: tuple[QueryParameter, ...] = ()
    method: str = "GET"
    body: Any = None
    """The pydantic model of what is sent, of an endpoint that changes something."""
    few_at_once: bool = False
    """Whether much is looked up for each caller, where others make what all who ask share."""


def path_names(request: Request) -> dict[str, str]:
    """The names in the request's path, as they are: a group may be called `a/b` (`a%2Fb` in the address)."""
    return {key: unquote(value) for key, value in request.path_params.items()}


def read_query(endpoint: ApiEndpoint, request: Request) -> dict[str, Any]:
    """A value for each parameter. Raises Refused, for one that is not known as well."""
    known = {query.name: query for query in endpoint.queries}
    for name in request.query_params:
        if name not in known:
            expected = ", ".join(known) or "none"
            raise HttpRefusal(
                400, "MALFORMED_REQUEST", f"{name[:100]!r} is no parameter here; expected {expected}", field=name[:100]
            )
    return {name: query.read(request.query_params.getlist(name)) for name, query in known.items()}


def validate_body(model: type[Model], document: Mapping[str, Any]) -> Model:
    """What was sent, as the model of it. Raises Refused, which names the field."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        text = f"{field or 'the body'}: {fault['msg'].lower()}"
        raise HttpRefusal(400, "MALFORMED_REQUEST", text, field=field) from None
