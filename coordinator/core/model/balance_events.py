"""What a group's balance hands itself for a later turn."""

from muster.coordinator.core.model.value import frozen_value


@frozen_value
class BalanceGoesOn:
    """The next stage of what a measurement led to: a large group's have a turn each. `ticket`: of which evaluation."""

    group_id: str
    ticket: int
