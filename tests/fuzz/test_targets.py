"""The targets of `make fuzz`, with bytes that Hypothesis draws."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.between import between
from tests.fuzz.conversion import conversion
from tests.fuzz.targets import codec, connection, judged
from tests.fuzz.watched import watched


@settings(max_examples=400)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    codec(data)


@settings(max_examples=150)
@given(st.binary(max_size=400))
def test_any_conversation_keeps_the_promises(data: bytes) -> None:
    connection(data)


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_any_conversation_of_who_may_not_do_all_keeps_the_promises(data: bytes) -> None:
    judged(data)


@settings(max_examples=150)
@given(st.binary(max_size=300))
def test_any_conversation_between_nodes_keeps_the_promises(data: bytes) -> None:
    between(data)


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_any_messages_of_an_old_producer_become_a_batch_or_are_refused(data: bytes) -> None:
    conversion(data)


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_records_of_a_watched_kafka_keep_the_promises(data: bytes) -> None:
    watched(data)
