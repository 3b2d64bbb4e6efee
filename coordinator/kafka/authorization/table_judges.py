"""Makes judges from the two tables: the rights that an API needs, and the shape of its answer.

A right to one field of the request, or to the cluster, refuses the whole request. A right to a field of a list takes
the refused rows out, and they are appended to the answer. A right to rows of the answer leaves rows out of it. What
depends on the schema is read once, when a judge is made: whether an answer has a code of its own, and in which
versions it has messages and nulls. Judges in code use the makers of refused rows too.
"""

from collections.abc import Callable, Collection, Iterable
from copy import copy
from operator import attrgetter
from typing import Any

from muster.coordinator.kafka.authorization.answer_shapes import SHAPES, Constants, LeftOut, Parts, Rows, Whole
from muster.coordinator.kafka.authorization.judge import (
    AccessCheck,
    Judge,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.codec.messages import FieldSchema, all_messages
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.security.access_model import CLUSTER_NAME
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight


def make_judge(api: str) -> Judge:
    """The judge of an API that has a row in both tables."""
    match SHAPES[api]:
        case Whole() as whole:
            return WholeJudge(api, whole)
        case Rows() as rows:
            return RowsJudge(api, rows)
        case LeftOut():
            return AnswerFilter(api)


def fields_of(path: str) -> dict[str, FieldSchema]:
    """The fields of a message or struct, in all versions.

    >>> fields_of("DescribeGroupsResponse.groups")["error_message"].versions
    range(6, 7)
    """
    return {field.name: field for field in all_messages()[path.partition(".")[0]].structs[path]}


def name_getter(field: str) -> Callable[[Any], str]:
    """Reads the name of a row; without a field, the row is the name."""
    return attrgetter(field) if field else str


# One name, or the cluster
# ------------------------


class WholeJudge:
    """Allows a request, or refuses all of it."""

    def __init__(self, api: str, shape: Whole) -> None:
        self._api = api
        self._rights = [right for right in API_RIGHTS[api] if not right.of_answer]
        self._left_out = [right for right in API_RIGHTS[api] if right.of_answer]
        self._shape = shape
        self._response = f"{api}Response"
        self._fields = fields_of(self._response)
        self._has_message = shape.write is not None or "error_message" in self._fields
        fields = [right.of for right in self._rights]
        self.member_right = self._rights[0] if fields == ["group_id"] else None
        """Set where the right to the group is all that the request needs."""

    def __call__(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        for right in self._rights:
            name = getattr(request, right.of) if right.of else CLUSTER_NAME
            if not may(call, right, name, api=self._api):
                return self._refuse(may, request, call, right, name)
        return self._leave_out(may, request, call) if self._shape.asked else None

    def _leave_out(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        """Rows of topics that the caller may not describe, where the request does not name them."""
        (right,) = self._left_out
        if may.allows_every(call, right):
            return None
        listed, field = self._shape.asked.split(".")
        asked = {getattr(row, field) for row in getattr(request, listed) or ()}

        def amend(answer: Any) -> Any:
            answered, key = right.split_path()
            rows = getattr(answer, answered)
            sees, name_of = may.name_filter(call, right, len(rows)), name_getter(key)
            setattr(answer, answered, [row for row in rows if name_of(row) in asked or sees(name_of(row))])
            return answer

        return PartialRequest(request, amend)

    def _refuse(
        self, may: AccessCheck, request: Any, call: KafkaCall, right: RequiredRight, name: str
    ) -> RefusalAnswer:
        refusal: dict[str, Any] = {"error_code": refusal_code(right)}
        if self._has_message:
            refusal["error_message"] = may.explain_refusal(call, right, name)
        if self._shape.write is None:
            answer = struct(self._response)(**self._constants_in(call.api_version), **refusal)
        else:
            answer = self._shape.write(self._response, request, refusal)
        if right.of:
            return RefusalAnswer(answer)
        # A large request is judged in a thread, which encodes the answer too.
        return RefusalAnswer(EncodedAnswer(encode(self._response, call.api_version, answer)))

    def _constants_in(self, version: int) -> Constants:
        return {
            name: value
            for name, value in self._shape.constants.items()
            if value is not None or version in self._fields[name].nullable
        }


# Names in a list
# ---------------


class RowsJudge:
    """Takes refused rows out of a request. Rights to one field come first, and refuse all of it."""

    def __init__(self, api: str, shape: Rows) -> None:
        *self._whole, self._right = API_RIGHTS[api]
        self._api = api
        self._shape = shape
        self._response = f"{api}Response"
        self._list, self._field = self._right.split_path()
        self._has_code = "error_code" in fields_of(self._response)
        self._refuse_rows = RefusedRows(f"{self._response}.{shape.answered}", self._field, shape)

    def __call__(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        for right in self._whole:
            if not may(call, right, getattr(request, right.of), api=self._api):
                return self._refuse(may, request, call, right)
        listed = getattr(request, self._list)
        rows = listed if self._field else dict.fromkeys(listed)  # each plain name once
        allowed, refused = may.split_allowed(call, self._right, rows, self._refuse_rows.name_of, api=self._api)
        if not refused:
            return None
        return partial_request(
            request,
            self._list,
            allowed,
            self._response,
            self._shape.answered,
            self._refuse_rows(may, call, self._right, refused),
            always_ask=self._shape.always_ask,
            unless_error=self._has_code,
        )

    def _refuse(self, may: AccessCheck, request: Any, call: KafkaCall, right: RequiredRight) -> RefusalAnswer:
        response = struct(self._response)
        if self._has_code:
            return RefusalAnswer(response(error_code=refusal_code(right)))
        rows = self._refuse_rows(may, call, right, getattr(request, self._list))
        return RefusalAnswer(response(**{self._shape.answered: rows}))


class RefusedRows:
    """Makes the rows of an answer that refuse rows of a request. `path` is the answer's, `field` the request's name."""

    def __init__(self, path: str, field: str, shape: Rows) -> None:
        self.name_of = name_getter(field)
        self._shape = shape
        self._row = struct(path)
        self._parts = None if shape.parts is None else RefusedParts(f"{path}.{shape.parts.answered}", shape.parts)
        message = fields_of(path).get("error_message")
        self._message_versions = range(0) if message is None else message.versions

    def __call__(self, may: AccessCheck, call: KafkaCall, right: RequiredRight, refused: Collection[Any]) -> list[Any]:
        code, among = refusal_code(right), len(refused)
        has_message = call.api_version in self._message_versions
        made = []
        for row in refused:
            name = self.name_of(row)
            fields: dict[str, Any] = {self._shape.key: name, **self._shape.constants}
            if self._parts is not None:
                fields[self._parts.answered] = self._parts(row, code)
            else:
                fields["error_code"] = code
            if has_message:
                fields["error_message"] = may.explain_refusal(call, right, name, among)
            made.append(self._row(**fields))
        return made


class RefusedParts:
    """Makes the inner rows of a refused row: one with the code for each that the request has."""

    def __init__(self, path: str, parts: Parts) -> None:
        self.answered = parts.answered
        self._requested = parts.requested
        self._key = parts.key
        self._answered_key = parts.answered_key
        self._constants = parts.constants
        self._part = struct(path)

    def __call__(self, row: Any, code: int) -> list[Any]:
        requested: Iterable[Any] = getattr(row, self._requested)
        keys = map(attrgetter(self._key), requested) if self._key else requested
        return [self._part(**{self._answered_key: key, "error_code": code}, **self._constants) for key in keys]


def partial_request(
    request: Any,
    requested: str,
    allowed: list[Any],
    response: str,
    answered: str,
    refused: list[Any],
    each: Callable[[Any], Any] | None = None,
    *,
    always_ask: bool = False,
    unless_error: bool = False,
) -> Verdict:
    """Ask the handler for the `allowed` of the list `requested`; append the `refused` to the answer's list `answered`.

    `each` completes a row of the handler. The handler is not called for nothing, unless it is to be asked always.
    `unless_error`: an answer with a code of its own is left as it is.
    """
    if not (allowed or always_ask):
        return RefusalAnswer(struct(response)(**{answered: refused}))
    left = copy(request)
    setattr(left, requested, allowed)

    def amend(answer: Any) -> Any:
        if unless_error and answer.error_code:
            return answer
        rows = getattr(answer, answered)
        setattr(answer, answered, [*(rows if each is None else map(each, rows)), *refused])
        return answer

    return PartialRequest(left, amend)


# Rows of the answer
# ------------------


class AnswerFilter:
    """Leaves out of an answer the rows that the caller may not see; asks for all where another right stands in."""

    def __init__(self, api: str) -> None:
        (self._right,) = API_RIGHTS[api]
        self._list, field = self._right.split_path()
        self._name_of = name_getter(field)

    def __call__(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        right, name_of = self._right, self._name_of
        if right.instead is not None and may.is_allowed(call, right.instead):
            return None

        def amend(answer: Any) -> Any:
            rows = getattr(answer, self._list)
            sees = may.name_filter(call, right, len(rows))
            setattr(answer, self._list, [row for row in rows if sees(name_of(row))])
            return answer

        return PartialRequest(request, amend)
