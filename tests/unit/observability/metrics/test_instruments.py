"""What is counted as it happens: by code, by time, and never without a limit."""

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.metrics.instruments import BOUNDS, Instruments, RequestMeter, Timing
from muster.coordinator.runtime.node_status import FENCING, MAX_FENCED, Metrics


@given(st.lists(st.floats(0, 1_000)))
def test_each_time_is_in_every_bucket_that_it_is_no_longer_than(times: list[float]) -> None:
    timing = Timing()
    for seconds in times:
        timing.took(seconds)
    expected = [(str(bound), sum(seconds <= bound for seconds in times)) for bound in BOUNDS]
    assert timing.cumulative() == [*expected, ("+Inf", len(times))]
    assert timing.count == len(times)


def test_answers_refusals_and_streams_of_an_api() -> None:
    meter = RequestMeter()
    for code in (0, 0, 27):
        meter.answered(0.1, code)
    meter.refused(0.1, "UNAVAILABLE")
    meter.ended()
    meter.ended("CANCELLED")
    assert meter.by_code() == {0: 3, 27: 1, "UNAVAILABLE": 1, "CANCELLED": 1}
    assert meter.count == 4  # streams have no duration


def test_a_door_s_api_has_one_meter() -> None:
    instruments = Instruments()
    assert instruments.meter("grpc", "Heartbeat") is instruments.meter("grpc", "Heartbeat")
    assert instruments.meter("grpc", "Heartbeat") is not instruments.meter("kafka", "Heartbeat")


def test_of_refusals_those_are_fenced_that_are_about_who_asks() -> None:
    assert {code.name for code in FENCING} == {
        *("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"),
        *("FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID"),
    }


def test_groups_that_come_and_go_fill_no_memory() -> None:
    metrics = Metrics()
    metrics.fence("known", ErrorCode.UNKNOWN_MEMBER_ID)
    for number in range(MAX_FENCED + 10):
        metrics.fence(f"invented-{number}", ErrorCode.UNKNOWN_MEMBER_ID)
    metrics.fence("known", ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(metrics.fenced) == MAX_FENCED
    assert metrics.fenced["known", ErrorCode.UNKNOWN_MEMBER_ID] == 2
