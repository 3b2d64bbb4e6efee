"""The situations, one function each: what is done, and what must be reported about it."""

from tests.truth.situations import comings_and_goings, nodes_and_networks, operators, static_members, topics  # noqa: F401
