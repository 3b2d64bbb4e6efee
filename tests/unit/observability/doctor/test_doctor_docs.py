"""docs/observe.md lists each rule with its cure, and each known defect with its source, as the tables have them."""

from pathlib import Path

from muster.coordinator.observability.doctor.client_rules import DEFECTS, Defect
from muster.coordinator.observability.doctor.model import DoctorRule
from muster.coordinator.observability.doctor.table import RULES

WHOLE = (Path(__file__).resolve().parents[4] / "docs" / "observe.md").read_text(encoding="utf-8")
PAGE = WHOLE.partition("\n## muster doctor\n")[2].partition("\n## ")[0]


def line_of(rule: DoctorRule) -> str:
    when = ((rule.group or rule.node).__doc__ or "").partition("\n")[0]
    return f"| `{rule.name}` | {rule.severity.name.lower()} | {when} | {rule.why} | {rule.cure} |"


def line_of_defect(defect: Defect) -> str:
    where = f", with `{defect.assignor}`" if defect.assignor else ""
    return f"| {defect.software} | {defect.since} | {defect.mended} | {defect.what}{where} | <{defect.source}> |"


def test_every_rule_is_listed_with_its_cure() -> None:
    assert [rule.name for rule in RULES if line_of(rule) not in PAGE] == []


def test_the_page_lists_no_rule_that_is_not_there() -> None:
    listed = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 6]
    assert [name for name in listed if name not in {rule.name for rule in RULES}] == []


def test_every_known_defect_is_listed_with_its_source() -> None:
    assert [defect.source for defect in DEFECTS if line_of_defect(defect) not in PAGE] == []
