"""What `muster produce` sends of a line, and which lines it names when some did not arrive."""

import pytest

from muster.cli.common.commands import CommandError, Exit
from muster.cli.records.produce import ANY, MAX_NAMED, CommittedLines, LineDelivery
from muster.client.errors import BufferFull, MessageTooLarge, OutcomeUnknown, TransactionAborted, Unreachable

TOO_LARGE = MessageTooLarge(10, "MESSAGE_TOO_LARGE", "a record of 9 bytes")
GONE = Unreachable("127.0.0.1:1", 500, "producing records")


def complaint(sending: LineDelivery) -> tuple[list[str], int]:
    with pytest.raises(CommandError) as raised:
        sending.check()
    return str(raised.value).splitlines(), raised.value.code


def test_lines_that_all_arrived_are_no_reason_to_complain() -> None:
    sending = LineDelivery("t", ANY, ())
    for number in (1, 2, 3):
        sending.settled(number, None, None)
    sending.check()
    assert sending.arrived == 3


def test_lines_that_the_node_refused_are_named_with_the_first_reason() -> None:
    sending = LineDelivery("t", ANY, ())
    for number in range(1, 10):
        sending.settled(number, TOO_LARGE if number in (2, 5, 6, 7) else None, None)
    told, code = complaint(sending)
    first = "MESSAGE_TOO_LARGE: a record of 9 bytes"
    assert told == [f"lines 2,5-7 did not arrive; the first because: {first}; 5 lines arrived"]
    assert code == Exit.FAILURE


def test_the_exit_code_is_that_of_the_first_reason() -> None:
    sending = LineDelivery("t", ANY, ())
    sending.settled(1, GONE, None)
    told, code = complaint(sending)
    assert told[0].startswith("line 1 did not arrive; the first because: producing records: no answer from")
    assert code == Exit.UNHEALTHY


def test_more_lines_than_anybody_reads_are_counted() -> None:
    sending = LineDelivery("t", ANY, ())
    for number in range(1, 3 * MAX_NAMED, 2):
        sending.settled(number, GONE, None)
    told, _ = complaint(sending)
    assert told[0].startswith("1,500 lines, from line 1 on, did not arrive")
    assert len(sending.lost_lines) == MAX_NAMED


def test_a_line_that_could_not_be_sent_says_where_to_go_on() -> None:
    sending = LineDelivery("t", ANY, ())
    sending.settled(1, None, None)
    sending.number, sending.end = 2, BufferFull("no room")
    assert complaint(sending)[0] == [
        "line 2: no room; nothing from there on was sent: mend it and go on with line 2; 1 line arrived"
    ]


class ScriptedProducer:
    """Says what was called, and fails at one commit."""

    def __init__(self, fails_at: int = 0, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.commits = 0
        self._fails_at = fails_at
        self._error = error

    def begin(self) -> None:
        self.calls.append("begin")

    def produce(self, topic: str, value: bytes, *more: object, **named: object) -> None:
        self.calls.append(value.decode())

    def commit(self) -> None:
        self.calls.append("commit")
        self.commits += 1
        if self.commits == self._fails_at and self._error is not None:
            raise self._error


def send_lines(producer: ScriptedProducer, count: int, commit_every: int | None) -> None:
    lines = CommittedLines(LineDelivery("t", ANY, ()), commit_every)
    lines.send_all(producer, [(None, b"%d" % number) for number in range(1, count + 1)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "commit_every", "calls"),
    [
        (3, None, "begin 1 2 3 commit"),
        (3, 2, "begin 1 2 commit begin 3 commit"),
        (4, 2, "begin 1 2 commit begin 3 4 commit"),
        (0, 2, ""),
    ],
)
def test_lines_are_committed_in_groups_and_at_the_end(count: int, commit_every: int | None, calls: str) -> None:
    producer = ScriptedProducer()
    send_lines(producer, count, commit_every)
    assert " ".join(producer.calls) == calls


def test_lines_of_a_transaction_that_does_not_count_are_named_and_where_to_go_on() -> None:
    with pytest.raises(CommandError) as raised:
        send_lines(ScriptedProducer(2, TransactionAborted(GONE)), 9, 3)
    told = str(raised.value)
    assert told.startswith(
        "lines 4-6 did not count: the transaction was aborted, because: producing records: no answer"
    )
    assert told.endswith("mend it and go on with line 4; 3 lines before them counted")
    assert raised.value.code == Exit.UNHEALTHY
    with pytest.raises(CommandError, match=r"^lines 1-3: nobody knows; look whether they are there; none before them$"):
        send_lines(ScriptedProducer(1, OutcomeUnknown("nobody knows")), 9, 3)
    with pytest.raises(ZeroDivisionError):
        send_lines(ScriptedProducer(1, ZeroDivisionError()), 9, 3)
