"""Endpoints, listening ports and the address of this node."""

import socket
from urllib.parse import urlsplit

import pytest
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from elasticqa.distributed.addresses import address_towards, choose_address, endpoint, listen


@pytest.mark.parametrize(
    ("host", "text"),
    [("node1", "node1:29500"), ("10.0.0.1", "10.0.0.1:29500"), ("fd77::1", "[fd77::1]:29500"), ("::1", "[::1]:29500")],
)
def test_endpoint_is_parsed_back_to_host_and_port(host: str, text: str) -> None:
    """Both by torch's rendezvous and as a URL."""
    assert endpoint(host, 29500) == text
    assert parse_rendezvous_endpoint(text, default_port=-1) == (host, 29500)
    url = urlsplit(f"tcp://{text}")
    assert (url.hostname, url.port) == (host, 29500)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_listening_port_accepts_ipv4_and_ipv6(address: str) -> None:
    with listen(1) as server, socket.create_connection((address, server.getsockname()[1]), timeout=10):
        pass


@pytest.mark.parametrize("spelled", ["::1", "0:0:0:0:0:0:0:1"])
def test_first_node_keeps_the_spelling_of_its_address(spelled: str) -> None:
    assert address_towards(spelled) == spelled


def test_link_local_address_is_chosen_last() -> None:
    of_link, of_network, other = ((socket.AF_INET6, (text, 9, 0, 2)) for text in ("fe80::7%eth0", "fd77::1", "fd77::2"))
    assert choose_address([of_link, of_network, other]) == of_network
    assert choose_address([of_link]) == of_link
