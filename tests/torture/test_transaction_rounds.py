"""A few rounds of transactions under kills, freezes and late requests; `tests.torture.transactions` has more."""

from pathlib import Path

import pytest

from tests.torture.transactions import torture


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_rounds_of_kills_freezes_and_late_requests_leave_no_anomaly(tmp_path: Path) -> None:
    census = torture("confluent", rounds=6, seed=3, place=tmp_path)
    assert census["transactions committed"]
