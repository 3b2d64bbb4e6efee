"""Ledgers of any kind, for properties that hold whatever a ledger says."""

from hypothesis import strategies as st

from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from tests.support.ledger_entries import ledger_entry

CAUSES = [name.removeprefix("REBALANCE_CAUSE_") for name in list(ledger_pb2.RebalanceCause.keys())]
OUTCOMES = [name.removeprefix("REBALANCE_OUTCOME_") for name in list(ledger_pb2.RebalanceOutcome.keys())]
PROCESSES = [f"{client}{life}" for client in "abc" for life in (1, 2, 3)]


@st.composite
def ledgers(draw: st.DrawFn) -> list[Rebalance]:
    number, at_s, entries = draw(st.integers(1, 3)), 0.0, []
    for _ in range(draw(st.integers(0, 14))):
        at_s += draw(st.sampled_from([0.0, 1.0, 20.0, 45.0, 400.0, 4000.0]))
        entries.append(
            ledger_entry(
                number,
                draw(st.sampled_from(CAUSES)),
                at_s,
                draw(st.lists(st.sampled_from(PROCESSES), unique=True, max_size=4)),
                by=draw(st.sampled_from(["", *PROCESSES])),
                outcome=draw(st.sampled_from(OUTCOMES)),
                took_s=draw(st.sampled_from([0.1, 30.0])),
            )
        )
        number += draw(st.integers(1, 2))
    return entries
