"""What `muster doctor` shows to people."""

import pytest

from muster.cli.doctor import MOST_OF_A_RULE, print_findings, summary
from muster.coordinator.observability.doctor.model import DoctorFacts
from muster.coordinator.observability.doctor.table import examine_facts
from tests.support.doctor import group, member


def facts(groups: int, name: str = "g") -> DoctorFacts:
    sick = member("m", client_id="evil\x1b[2J", client_host="", topics=(), session_timeout_ms=600_000)
    return DoctorFacts(1, groups=tuple(group(sick, name=f"{name}{n}") for n in range(groups)))


def test_of_one_rule_only_some_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    many = facts(MOST_OF_A_RULE + 3)
    print_findings(many, examine_facts(many))
    out = capsys.readouterr().out
    assert out.count("session-too-long\n") == MOST_OF_A_RULE
    assert "... and session-too-long 3 times more; -o json has them all" in out


def test_names_command_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    one = facts(1, "\x1b]0;title\x07")
    print_findings(one, examine_facts(one))
    out = capsys.readouterr().out
    assert "evil\\x1b[2J" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_advice_is_no_error() -> None:
    one = facts(1)
    assert summary(one, examine_facts(one)).startswith("0 errors, 0 warnings, 1 of advice. Looked at 1 group, 1 member")
