"""A few rounds of kills around our own client's transactions."""

from pathlib import Path

import pytest

from tests.torture.billing_kills import BillingKills

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_each_order_is_billed_once_whoever_is_killed_meanwhile(tmp_path: Path) -> None:
    kills = BillingKills(tmp_path, rounds=6, seed=3)
    assert kills.run(), kills.proof
    assert kills.proof is not None
    assert kills.proof.left_in_log > 0, "transactions were open when their workers were killed"
