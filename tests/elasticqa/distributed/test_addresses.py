"""Addresses in front of a port, and ports that nodes with either kind of address reach."""

import socket
from urllib.parse import urlsplit

import pytest
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from elasticqa.distributed.addresses import address_towards, choose_address, endpoint, listen


@pytest.mark.parametrize(
    ("host", "text"),
    [("node1", "node1:29500"), ("10.0.0.1", "10.0.0.1:29500"), ("fd77::1", "[fd77::1]:29500"), ("::1", "[::1]:29500")],
)
def test_endpoint_is_read_as_it_was_written(host: str, text: str) -> None:
    """By torch's rendezvous, and by whoever takes the address of a process group."""
    assert endpoint(host, 29500) == text
    assert parse_rendezvous_endpoint(text, default_port=-1) == (host, 29500)
    url = urlsplit(f"tcp://{text}")
    assert (url.hostname, url.port) == (host, 29500)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_port_is_reached_at_addresses_of_either_kind(address: str) -> None:
    with listen(1) as server, socket.create_connection((address, server.getsockname()[1]), timeout=10):
        pass


@pytest.mark.parametrize("spelt", ["::1", "0:0:0:0:0:0:0:1"])
def test_own_address_is_told_as_the_others_spell_it(spelt: str) -> None:
    assert address_towards(spelt) == spelt


def test_address_of_a_link_is_taken_last() -> None:
    of_link, of_network, other = ((socket.AF_INET6, (text, 9, 0, 2)) for text in ("fe80::7%eth0", "fd77::1", "fd77::2"))
    assert choose_address([of_link, of_network, other]) == of_network
    assert choose_address([of_link]) == of_link
