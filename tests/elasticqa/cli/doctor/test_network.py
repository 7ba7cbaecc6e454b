"""Host names, network interfaces and loopback."""

import pytest

from elasticqa.cli.doctor.network import check_interfaces, check_loopback, check_names

ANY_OWN_ADDRESS = "0.0.0.0"
ANOTHER_MACHINE = "192.0.2.1"  # RFC 5737: never assigned


@pytest.mark.parametrize(("host_name", "full_name"), [("no-such.invalid", "localhost"), ("localhost", "a.invalid")])
def test_name_that_does_not_resolve_fails(host_name: str, full_name: str) -> None:
    finding = check_names(host_name, full_name)
    assert finding.status == "fail"
    assert ".invalid' of this machine does not resolve" in finding.found
    assert "/etc/hosts" in (finding.advice or "")


def test_name_that_is_too_long_to_resolve_fails() -> None:
    assert check_names("x" * 70, "localhost").status == "fail"


def test_name_of_another_machine_fails() -> None:
    finding = check_names("localhost", ANOTHER_MACHINE)
    assert finding.status == "fail"
    assert f"{ANOTHER_MACHINE} is not an address of this machine" in finding.found


def test_host_name_on_loopback_is_a_warning() -> None:
    finding = check_names("localhost", "localhost")
    assert finding.status == "warn"
    assert "works on one node" in finding.found


def test_address_of_this_machine_is_ok() -> None:
    assert check_names(ANY_OWN_ADDRESS, ANY_OWN_ADDRESS).status == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "is_ok"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0", True),
        ("NCCL_SOCKET_IFNAME", "eth", True),
        ("NCCL_SOCKET_IFNAME", "=eth0", True),
        ("NCCL_SOCKET_IFNAME", "^docker", True),
        ("NCCL_SOCKET_IFNAME", "ib0,eth0", True),
        ("GLOO_SOCKET_IFNAME", "ib0", False),
        ("NCCL_SOCKET_IFNAME", "=ib0,ib1", False),
        ("GLOO_SOCKET_IFNAME", "", True),
    ],
)
def test_chosen_interface_must_exist(variable: str, value: str, is_ok: bool) -> None:
    findings = check_interfaces({variable: value}, {"lo", "eth0"})
    assert bool(findings) is not is_ok
    assert all(finding.status == "fail" and variable in finding.found for finding in findings)


def test_loopback_can_be_reached() -> None:
    assert check_loopback().status == "ok"


def test_loopback_that_cannot_be_bound_fails() -> None:
    finding = check_loopback(ANOTHER_MACHINE)
    assert finding.status == "fail"
    assert f"{ANOTHER_MACHINE} cannot be bound" in finding.found
