"""What every request of the Broker service must look like, whatever it asks for."""

MAX_PARTITIONS_PER_REQUEST = 100_000


class MalformedRequest(Exception):
    """The request breaks its own shape; the text says how, and what was expected."""


def bounded(what: str, count: int) -> None:
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise MalformedRequest(
            f"The request names {count} {what}; at most {MAX_PARTITIONS_PER_REQUEST} are taken. Split it."
        )


def each_once(what: str, names: list[str] | list[tuple[str, int]]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise MalformedRequest(f"The request names {what} {name} twice; expected each once.")
        seen.add(name)
