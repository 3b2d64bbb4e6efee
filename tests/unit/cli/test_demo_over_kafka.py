"""What `muster demo --engine` proves, and that it says so when something does not hold."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from muster.cli.demo.kafka_backend_demo import ASSIGNOR, TakeoverProof, show_takeover_proof
from muster.cli.main import main

HOLDS = TakeoverProof(
    sent=6, read=6, again=1, in_kafka=False, planned_by=ASSIGNOR, before=(1, 1), after=(1, 1), without_s=6.5
)


def told(proved: TakeoverProof) -> str:
    out = io.StringIO()
    show_takeover_proof(Console(file=out, width=100), proved)
    return out.getvalue()


def test_all_of_it_holds() -> None:
    assert HOLDS.holds
    assert "all of it holds" in told(HOLDS)


@pytest.mark.parametrize(
    "wrong", [{"read": 5}, {"in_kafka": True}, {"planned_by": "range"}, {"after": (2, 1)}, {"after": (1, 2)}]
)
def test_one_thing_that_does_not_hold_is_enough(wrong: dict[str, Any]) -> None:
    proved = replace(HOLDS, **wrong)
    assert not proved.holds
    assert "NOT ALL OF IT HOLDS" in told(proved)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "b1:9092"], "--engine is b1:9092; expected kafka://HOST:PORT"),
        (["--engine", "kafka://b1:9092", "--workers", "2"], "--engine has a story of its own"),
    ],
)
def test_what_it_does_not_take(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert sentence in capsys.readouterr().err
