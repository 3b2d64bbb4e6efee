"""A part of the truth table with the Python clients: unmodified clients in processes, against real nodes."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.truth import situations as _all  # noqa: F401
from tests.truth.clients import clients_named
from tests.truth.judge import RIGHT
from tests.truth.nodes import running_backends
from tests.truth.situations.registry import SITUATIONS
from tests.truth.table import Cell, play, report_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CELLS = [
    ("initial-start", "kafka-python"),
    ("leave-without-close", "confluent-848"),
    ("killed-and-join", "confluent"),
    ("poll-exceeded-and-back", "confluent"),
    ("second-round", "confluent-coop"),
    ("static-twins", "confluent"),
    ("killed-and-restarted", "aiokafka"),
    ("leave-with-close", "kafka-python-coop"),
]
BESIDE = 4

Played = dict[tuple[str, str], "Future[Cell]"]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """The cells of the tests that were selected, played side by side."""
    mine = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    selected = {(item.callspec.params["situation"], item.callspec.params["client"]) for item in mine}
    with running_backends() as backends, ThreadPoolExecutor(BESIDE) as pool:
        yield {
            (situation, client): pool.submit(play, SITUATIONS[situation], clients_named((client,))[0], backends)
            for situation, client in CELLS
            if (situation, client) in selected
        }


@pytest.mark.parametrize(("situation", "client"), CELLS)
def test_what_is_reported_is_what_happened(played: Played, situation: str, client: str) -> None:
    cell = played[situation, client].result()
    assert cell.verdict.word == RIGHT, report_of(cell, verbose=True)
