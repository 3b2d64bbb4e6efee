"""Commands that override a group: each makes one call of the admin client, with what was said and nothing else."""

import inspect
from collections.abc import Callable
from typing import Any, Self

import pytest
from click.testing import CliRunner

from muster.cli.groups import control
from muster.cli.main import cli
from muster.client import Admin
from muster.client.described import GroupHolds, HoldResult

SHARED = {"validate_only": False, "reason": ""}


class CallNotes:
    """Takes an admin client's place: notes each call as the parameters of the real method have it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, method: str) -> Callable[..., HoldResult]:
        def call(*args: Any, **kwargs: Any) -> HoldResult:
            bound = inspect.signature(getattr(Admin, method)).bind(None, *args, **kwargs)
            self.calls.append((method, {name: value for name, value in bound.arguments.items() if name != "self"}))
            return HoldResult("done", GroupHolds())

        return call


@pytest.mark.parametrize(
    ("words", "method", "arguments"),
    [
        ("freeze g", "freeze_group", {}),
        ("freeze g --orphans keep --for 2m", "freeze_group", {"orphans": "keep", "for_ms": 120_000}),
        ("deploy g --expect 3", "deploy_group", {"expect": 3, "for_ms": 900_000}),
        ("drain g m", "drain_member", {"name": "m", "by": "member-id"}),
        ("drain g m --by host --for 1h", "drain_member", {"name": "m", "by": "host", "for_ms": 3_600_000}),
        ("undrain g m --by instance", "undrain_member", {"name": "m", "by": "instance"}),
        ("pin g a:b:3 m", "pin_partition", {"topic": "a:b", "partition": 3, "name": "m"}),
        ("unpin g t:0", "unpin_partition", {"topic": "t", "partition": 0}),
        ("resume g", "resume_group", {}),
        ("resume g --only deploy", "resume_group", {"what": "deploy"}),
        (
            "resume g --version 4 --dry-run --reason why",
            "resume_group",
            {"expected_version": 4, "validate_only": True, "reason": "why"},
        ),
    ],
)
def test_a_command_makes_one_call_with_what_was_said(
    monkeypatch: pytest.MonkeyPatch, words: str, method: str, arguments: dict[str, Any]
) -> None:
    admin = CallNotes()
    monkeypatch.setattr(control, "connect_admin", lambda bootstrap, overrides: admin)

    result = CliRunner().invoke(cli, ["groups", *words.split()])

    assert result.exit_code == 0, result.output
    assert admin.calls == [(method, {"group": "g", **SHARED, **arguments})]


def test_a_partition_that_is_none_is_refused_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = CallNotes()
    monkeypatch.setattr(control, "connect_admin", lambda bootstrap, overrides: admin)

    result = CliRunner().invoke(cli, ["groups", "unpin", "g", "orders"])

    assert result.exit_code == 2
    assert "expected TOPIC:NUMBER, such as orders:3" in result.output
    assert admin.calls == []
