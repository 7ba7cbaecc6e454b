"""Host names and network interfaces."""

import pytest

from elasticqa.cli.doctor.network import check_interfaces, check_names

ANY_OWN_ADDRESS = "0.0.0.0"
ANOTHER_MACHINE = "192.0.2.1"  # RFC 5737: never assigned


@pytest.mark.parametrize(("host_name", "full_name"), [("no-such.invalid", "localhost"), ("localhost", "a.invalid")])
def test_name_that_does_not_resolve_fails(host_name: str, full_name: str) -> None:
    finding = check_names(host_name, full_name)
    assert finding.status == "fail"
    assert ".invalid' of this machine does not resolve" in finding.found
    assert "/etc/hosts" in (finding.advice or "")


@pytest.mark.parametrize(
    ("host_name", "full_name", "status", "expected"),
    [
        (ANY_OWN_ADDRESS, ANY_OWN_ADDRESS, "ok", ""),
        ("localhost", "localhost", "warn", "works on one node"),
        ("localhost", ANOTHER_MACHINE, "fail", f"{ANOTHER_MACHINE} is not an address of this machine"),
        ("x" * 70, "localhost", "fail", ""),
    ],
)
def test_host_name_must_be_an_address_of_this_machine(
    host_name: str, full_name: str, status: str, expected: str
) -> None:
    finding = check_names(host_name, full_name)
    assert finding.status == status
    assert expected in finding.found


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
