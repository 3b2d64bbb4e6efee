"""The tables behind the judges fit each other, and the schema in every served version."""

from collections.abc import Iterator

import pytest

from muster.coordinator.kafka.authorization.answer_shapes import SHAPES, LeftOut, Rows, Whole
from muster.coordinator.kafka.authorization.guard import CODE_JUDGES, LISTS_WITHOUT_RIGHT, request_lists
from muster.coordinator.kafka.authorization.table_judges import WholeJudge, fields_of, make_judge
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.rights import API_RIGHTS, WithoutRight

VERSIONS = {api.name: range(api.first, api.last + 1) for api in APIS}


def test_every_api_with_rights_has_either_a_shape_or_a_judge_in_code() -> None:
    assert SHAPES.keys() & CODE_JUDGES.keys() == set()
    assert SHAPES.keys() | CODE_JUDGES.keys() == {api for api, rights in API_RIGHTS.items() if rights}


def test_rights_that_depend_on_the_request_are_judged_in_code() -> None:
    assert [(api, right.when) for api in SHAPES for right in API_RIGHTS[api] if right.when] == []


@pytest.mark.parametrize("api", SHAPES)
def test_a_shape_fits_the_rights_of_its_api(api: str) -> None:
    *first, last = API_RIGHTS[api]
    match SHAPES[api]:
        case Whole(asked=asked):
            assert all("." not in right.of for right in API_RIGHTS[api] if not right.of_answer)
            assert any(right.of_answer for right in API_RIGHTS[api]) is bool(asked)
        case Rows():
            assert all(right.of and "." not in right.of for right in first)
            assert fields_of(f"{api}Request")[last.split_path()[0]].array
        case LeftOut():
            assert not first
            assert last.of_answer
            assert last.lacking is WithoutRight.LEFT_OUT


@pytest.mark.parametrize("api", SHAPES)
def test_every_field_of_the_tables_is_there_in_every_served_version(api: str) -> None:
    for path, name in named_fields(api):
        field = fields_of(path).get(name)
        assert field is not None, f"{path} has no {name}"
        missing = set(VERSIONS.get(api, field.versions)) - set(field.versions)
        assert not missing, f"{path}.{name} is not in versions {missing}"


def named_fields(api: str) -> Iterator[tuple[str, str]]:
    """The struct and the name of each field that the two tables name."""
    request, response = f"{api}Request", f"{api}Response"
    for right in API_RIGHTS[api]:
        message = response if right.of_answer else request
        first, field = right.split_path()
        if first:
            yield message, first
        if field:
            yield f"{message}.{first}", field
    match SHAPES[api]:
        case Whole(constants):
            yield from ((response, name) for name in constants)
        case Rows(answered, key, parts, constants):
            row = f"{response}.{answered}"
            yield response, answered
            yield from ((row, name) for name in (key, *constants))
            if parts is not None:
                listed, _ = API_RIGHTS[api][-1].split_path()
                yield f"{request}.{listed}", parts.requested
                if parts.key:
                    yield f"{request}.{listed}.{parts.requested}", parts.key
                yield row, parts.answered
                part = f"{row}.{parts.answered}"
                yield from ((part, name) for name in (parts.answered_key, "error_code", *parts.constants))


def test_only_rights_to_the_callers_group_alone_take_the_shortcut_of_heartbeats() -> None:
    judges = {api: make_judge(api) for api in SHAPES}
    shortcut = {api for api, judge in judges.items() if isinstance(judge, WholeJudge) and judge.member_right}
    assert shortcut == {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}


def test_lists_that_no_right_names_are_there() -> None:
    for api, names in LISTS_WITHOUT_RIGHT.items():
        assert set(names) <= set(request_lists(api)), api


def test_a_large_commit_is_judged_in_its_place() -> None:
    assert request_lists("OffsetCommit") == ()
