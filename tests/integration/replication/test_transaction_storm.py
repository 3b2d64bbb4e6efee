"""Transactions while nodes are killed, stopped, cut off and muted; `transaction_storm` says what is checked."""

from pathlib import Path

import pytest

from tests.support.transaction_storm import storm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.mark.parametrize("seed", [1, 2])
def test_transactions_are_whole_whatever_becomes_of_nodes(tmp_path: Path, seed: int) -> None:
    met = storm(tmp_path, seed, rounds=12)
    assert met["committed"] > 0
    assert met["aborted"] > 0
    assert met["new instance"] > 0
