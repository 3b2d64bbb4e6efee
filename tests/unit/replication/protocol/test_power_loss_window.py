"""CL-Z4: for how long a node that lost power with loosely flushed logs is one that may lack records."""

from collections.abc import Mapping

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterNode,
    ClusterNodeStatus,
    ClusterState,
    NodeView,
    PartitionView,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.controller_state import (
    ControllerSettings,
    is_power_loss_settled,
)

ME = ClusterNode(2, 57, "disk", unclean=True)
LOOSE, STRICT = {"flush.messages": "1000"}, {"flush.messages": "1"}


def image_of(
    configs: Mapping[str, str],
    *,
    isr: tuple[int, ...],
    elr: tuple[int, ...] = (),
    directories: Mapping[int, str] | None = None,
    epoch: int = ME.epoch,
    status: ClusterNodeStatus = ClusterNodeStatus.LIVE,
) -> ClusterImage:
    part = PartitionView(1, 3, 5, isr, elr, (1, 2, 3), directories=directories)
    image = ClusterImage()
    told = ClusterState(
        epoch=1,
        sequence=1,
        full=True,
        nodes=(NodeView(ME.id, epoch, status),),
        topics=(TopicView(b"o" * 16, "orders", configs, {0: part}),),
    )
    assert image.apply(told) is not None
    return image


def is_over(image: ClusterImage, *, loose: bool = False) -> bool:
    return is_power_loss_settled(ME, image, ControllerSettings(loose=loose).loose_of)


def test_before_it_was_taken_in_nobody_reckons_with_it() -> None:
    assert not is_over(image_of(LOOSE, isr=(1,), epoch=56))
    assert not is_over(image_of(LOOSE, isr=(1,), status=ClusterNodeStatus.GONE))
    assert not is_power_loss_settled(ME, ClusterImage(), ControllerSettings().loose_of)


def test_who_is_in_sync_nowhere_has_nothing_to_lose() -> None:
    assert is_over(image_of(LOOSE, isr=(1, 3)))


@pytest.mark.parametrize("known", [{2: "disk"}, {2: "disk@41"}, {}, None])
@pytest.mark.parametrize(("isr", "elr"), [((2,), ()), ((1,), (2,))])
def test_who_counts_by_what_it_was_before_still_lacks_it(
    known: Mapping[int, str] | None, isr: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    """The last one in sync: in its next life it would be elected as if nothing was missing, and nobody would know."""
    assert not is_over(image_of(LOOSE, isr=isr, elr=elr, directories=known))


@pytest.mark.parametrize(("isr", "elr"), [((1, 2), ()), ((1,), (2,))])
def test_who_has_caught_up_in_this_life_is_as_any_other(isr: tuple[int, ...], elr: tuple[int, ...]) -> None:
    assert is_over(image_of(LOOSE, isr=isr, elr=elr, directories={1: "other", 2: "disk@57"}))


def test_where_each_record_is_flushed_nothing_was_lost() -> None:
    assert is_over(image_of(STRICT, isr=(1, 2), directories={2: "disk"}), loose=True)
    assert not is_over(image_of({}, isr=(1, 2), directories={2: "disk"}), loose=True)
