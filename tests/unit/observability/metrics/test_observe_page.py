"""docs/observe.md says what the table of metrics says, and which question each answers."""

import re
from pathlib import Path

import pytest

from muster.coordinator.observability.metrics.table import FAMILIES, MetricFamily

PAGE = (Path(__file__).parents[4] / "docs/observe.md").read_text()
ROWS = {
    cells[0].strip("`"): cells
    for cells in re.findall(r"^\| (`[a-z_]+`) \| (.*?) \| (.*?) \| (.*) \| (.*) \|$", PAGE, re.M)
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_metric_is_told_of_as_it_is(family: MetricFamily) -> None:
    _, kind, labels, meaning, question = ROWS[family.name]
    assert (kind, meaning) == (family.kind, family.meaning)
    assert tuple(re.findall(r"`([^`]+)`", labels)) == family.labels
    assert question.endswith("?")


def test_no_metric_is_told_of_that_there_is_not() -> None:
    assert {name for name in ROWS if name.startswith(("kafka_", "muster_"))} == set(FAMILIES)
