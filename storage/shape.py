"""What every request of the Broker service must look like, whatever it asks for."""

MAX_ENTRIES = 100_000
"""Of any list in one request, here as at every other door of a node."""


class MalformedRequest(Exception):
    """The request breaks its own shape; the text says how, and what was expected."""


def check_entry_count(what: str, count: int) -> None:
    if count > MAX_ENTRIES:
        raise MalformedRequest(f"The request names {count} {what}; at most {MAX_ENTRIES} are taken. Split it.")


def check_unique(what: str, names: list[str] | list[tuple[str, int]]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise MalformedRequest(f"The request names {what} {name} twice; expected each once.")
        seen.add(name)
