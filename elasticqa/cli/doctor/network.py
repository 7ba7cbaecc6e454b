"""This machine's network: its names, to which gloo and torchrun bind, and the chosen interfaces."""

import ipaddress
import socket
from collections.abc import Mapping

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn

_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def check(environ: Mapping[str, str]) -> list[Finding]:
    """Check the host's names, and the interfaces that the environment chooses."""
    interfaces = {name for _, name in socket.if_nameindex()}
    return [check_names(socket.gethostname(), socket.getfqdn()), *check_interfaces(environ, interfaces)]


def check_names(host_name: str, full_name: str) -> Finding:
    """Return whether other ranks reach this machine by its own names, short and fully qualified."""
    advice = f"add a line to /etc/hosts: ADDRESS {host_name}, with an address of this machine"
    addresses: dict[str, list[str]] = {}
    for name in dict.fromkeys((host_name, full_name)):
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            return fail("host", f"the name {name!r} of this machine does not resolve ({error})", advice)
        addresses[name] = list(dict.fromkeys(str(address[0]) for *_, address in answers))
    found = "; ".join(f"{name} is {', '.join(values)}" for name, values in addresses.items())
    listed = [address for values in addresses.values() for address in values]
    foreign = [address for address in listed if not _is_own(address)]
    if foreign:
        return fail("host", f"{found}; {foreign[0]} is not an address of this machine", advice)
    if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in listed):
        advice += "; or set GLOO_SOCKET_IFNAME to its network interface"
        return warn("host", f"{found}: works on one node, but other nodes cannot reach it", advice)
    return ok("host", found)


def check_interfaces(environ: Mapping[str, str], interfaces: set[str]) -> list[Finding]:
    """Return the variables that choose a network interface which does not exist."""
    findings = []
    for variable in _INTERFACE_VARIABLES:
        value = environ.get(variable, "")
        # NCCL takes a list of prefixes; `=` asks for whole names and `^` excludes names.
        wanted = [] if value.startswith("^") else [name for name in value.lstrip("=").split(",") if name]
        if wanted and not any(known.startswith(name.partition(":")[0]) for name in wanted for known in interfaces):
            found = f"{variable}={value}, but the interfaces are {', '.join(sorted(interfaces))}"
            findings.append(fail("host", found, f"unset {variable}, or set it to one of them"))
    return findings


def _is_own(address: str) -> bool:
    """Return whether an address belongs to this machine, that is, whether a socket can bind to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address.partition("%")[0], 0))
    except OSError:
        # Binding to a link-local address fails without its interface; assume that the address is this machine's.
        return ipaddress.ip_address(address.partition("%")[0]).is_link_local
    return True
