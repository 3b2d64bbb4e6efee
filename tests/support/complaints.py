"""What is said of settings that cannot be."""

import pytest

from muster.coordinator.config import SettingsError, load_settings


def complaint(given: dict[str, str], *, secret: str = "correct-") -> str:
    """The sentence, in which no secret stands: those of the tests begin with `secret`."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, given)
    assert secret not in str(caught.value)
    return str(caught.value)
