"""The rows of the table, a function each: what is done, and what is to be told of it."""

from tests.truth.situations import comings_and_goings, nodes_and_networks, operators, static_members, topics  # noqa: F401
