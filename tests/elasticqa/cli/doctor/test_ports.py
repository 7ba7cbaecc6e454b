"""Ports that are free, taken, or on an address that is not here."""

import socket

import pytest

from elasticqa.cli.doctor.ports import check_loopback, check_port


def test_loopback_is_talked_through() -> None:
    assert check_loopback().status == "ok"


def test_address_of_another_machine_cannot_be_bound() -> None:
    finding = check_loopback("192.0.2.1")
    assert finding.status == "fail"
    assert "192.0.2.1 cannot be bound" in finding.found


@pytest.mark.parametrize(("address", "family"), [("", socket.AF_INET), ("::", socket.AF_INET6)])
def test_port_that_somebody_listens_on_is_told(address: str, family: socket.AddressFamily) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        finding = check_port(port)
    assert finding.status == "warn"
    assert f"port {port} is in use" in finding.found
    assert check_port(port).status == "ok"
