"""Check that the nodes of a job can train together, from the facts that each node reports (`distributed.facts`)."""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ABOUT_HOME = "all nodes need one home directory; set ELASTICQA_HOME to one on a file system that they share"


def incompatibility(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]], home: Path) -> str:
    """Return the first reason why nodes cannot train together, on one line; empty if there is none.

    Args:
        first: facts of the first node.
        others: facts of the other nodes.
        home: home directory of the record.
    """
    nodes = (first, *others)
    for node in nodes:
        if node["refusal"] is not None:
            is_common = all(other["refusal"] == node["refusal"] for other in nodes)
            return str(node["refusal"]) if is_common else f"{node['host']}: {node['refusal']}"
    for node in others:
        if not node["sees_home"]:
            return f"{home} is not the same directory on {first['host']} and {node['host']}: {ABOUT_HOME}"
    problems = [problem for node in others for problem in (different_versions(first, node), unknown_host(first, node))]
    problems += [unreachable_own_name(node) for node in nodes if others]
    return next((f"{problem}: {way_out}" for problem, way_out in filter(None, problems)), "")


def different_versions(first: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the differences between the environments of two nodes, and the way out; None without any."""
    different = [
        f"{name} is {value} on {first['host']} and {node['versions'].get(name)} on {node['host']}"
        for name, value in first["versions"].items()
        if node["versions"].get(name) != value
    ]
    if not different:
        return None
    way_out = "all nodes need the same environment; install it on a file system that they share, or alike on each"
    return ", ".join(different), way_out


def unknown_host(first: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that a node cannot resolve the first node's name, and the way out; None if it can."""
    if node["finds_first"]:
        return None
    problem = f"{node['host']} cannot resolve the name {first['host']}, to which its workers must connect"
    return problem, f"add it to the name server, or to /etc/hosts of {node['host']}"


def unreachable_own_name(node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that a node resolves its own name to a loopback address, and the way out; None if not.

    gloo listens at the address of that name, where no other node could reach it.
    """
    if node["chooses_interface"] or not all(map(_is_loopback, node["own_addresses"])):
        return None
    address = ", ".join(node["own_addresses"]) or "nothing"
    problem = f"{node['host']} resolves its own name to {address}, where no other node reaches it"
    return problem, "give the name an address of its network in /etc/hosts, or set GLOO_SOCKET_IFNAME"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
