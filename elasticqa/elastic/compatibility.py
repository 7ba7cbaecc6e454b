"""Why nodes of a job cannot train together, from what each tells of itself."""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ABOUT_HOME = "all nodes need one home directory; set ELASTICQA_HOME to one on a file system that they share"


def complaint_of(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]], home: Path) -> str:
    """Return the first reason why nodes cannot train together, on one line; empty where there is none.

    Args:
        first: facts of the first node.
        others: of the other ones.
        home: the home directory of the record.
    """
    nodes = (first, *others)
    for node in nodes:
        if node["refusal"] is not None:
            is_common = all(other["refusal"] == node["refusal"] for other in nodes)
            return str(node["refusal"]) if is_common else f"{node['host']}: {node['refusal']}"
    for node in others:
        if not node["sees_home"]:
            return f"{home} is not the same directory on {first['host']} and {node['host']}: {ABOUT_HOME}"
    complaints = [complaint for node in others for complaint in (of_versions(first, node), of_first_name(first, node))]
    complaints += [of_own_name(node) for node in nodes if others]
    return next((f"{problem}: {way_out}" for problem, way_out in filter(None, complaints)), "")


def of_versions(first: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what differs between the environments of two nodes, and the way out."""
    different = [
        f"{name} is {value} on {first['host']} and {node['versions'].get(name)} on {node['host']}"
        for name, value in first["versions"].items()
        if node["versions"].get(name) != value
    ]
    if not different:
        return None
    way_out = "all nodes need the same environment; install it on a file system that they share, or alike on each"
    return ", ".join(different), way_out


def of_first_name(first: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that a node does not know the first one by name, if so, and the way out."""
    if node["finds_first"]:
        return None
    problem = f"{node['host']} does not find {first['host']} by its name, and workers meet there"
    return problem, f"add it to the name server, or to /etc/hosts of {node['host']}"


def of_own_name(node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return that no other node could reach this one where its own name leads, if so: gloo listens there."""
    if node["chooses_interface"] or not all(map(_is_loopback, node["own_addresses"])):
        return None
    address = ", ".join(node["own_addresses"]) or "nothing"
    problem = f"{node['host']} resolves its own name to {address}, where no other node reaches it"
    return problem, "give the name an address of its network in /etc/hosts, or set GLOO_SOCKET_IFNAME"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
