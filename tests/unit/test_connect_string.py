"""`zookeeper.connect`: servers, ports, chroot, and what is none of it."""

import pytest

from muster.coordinator.config import Address, SettingsError, load_settings, parse_connect


def test_servers_ports_and_chroot() -> None:
    found = parse_connect("zk1, zk2:2182 ,[::1]:2183,[::2]/a/b")
    assert found.servers == (Address("zk1", 2181), Address("zk2", 2182), Address("::1", 2183), Address("::2", 2181))
    assert found.chroot == "/a/b"
    assert found.hosts == "zk1:2181,zk2:2182,[::1]:2183,[::2]:2181"
    assert parse_connect(str(found)) == found


def test_the_root_is_no_chroot() -> None:
    assert parse_connect("zk/").chroot == ""
    assert parse_connect("zk").chroot == ""


@pytest.mark.parametrize("text", ["", "/a", "zk:no", "zk:99999", "zk,,zk", "zk/a//b", "zk/a/", "zk/../a", "http://zk"])
def test_what_is_no_connect_string_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"chroot|HOST:PORT,HOST:PORT/CHROOT"):
        parse_connect(text)


def test_the_setting_says_what_it_wants() -> None:
    with pytest.raises(
        SettingsError, match=r"zookeeper.connect is 'zk:no', expected HOST:PORT,HOST:PORT/CHROOT or nothing"
    ):
        load_settings(None, {"zookeeper.connect": "zk:no"})
    assert load_settings(None, {}).zookeeper_connect == ""
