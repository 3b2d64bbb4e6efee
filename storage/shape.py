"""What every request of the Broker service must look like, whatever it asks for."""

MAX_PARTITIONS_PER_REQUEST = 10_000


class MalformedRequest(Exception):
    """The request breaks its own shape; the text says how, and what was expected."""


def bounded(what: str, count: int) -> None:
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise MalformedRequest(
            f"The request names {count} {what}; at most {MAX_PARTITIONS_PER_REQUEST} are taken. Split it."
        )


def each_once(what: str, names: list[str] | list[tuple[str, int]]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)  # type: ignore[arg-type]
        raise MalformedRequest(f"The request names {what} {twice} twice; expected each once.")
