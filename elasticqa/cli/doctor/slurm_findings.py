"""The findings of the check job, from the messages of its nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.elastic.compatibility import ABOUT_HOME, different_versions, unknown_host, unreachable_own_name

MAX_CLOCK_OFFSET_S = 1.0


def findings_of(messages: Sequence[Mapping[str, Any]], directory: Path, mark: str, num_gpus: int) -> list[Finding]:
    """Return a finding for each subject.

    Args:
        messages: of the nodes, each with a ``kind``.
        directory: where the login node wrote a file named ``mark``, and each node one named ``mark``-NUMBER.
        mark: name of the file.
        num_gpus: GPUs that each node must see.
    """
    nodes = sorted((message for message in messages if message["kind"] == "node"), key=lambda node: int(node["number"]))
    if len(nodes) < 2:
        advice = "check that the Python environment of this command exists on every node: srun -N 2 with its python"
        return [fail("nodes", f"only {len(nodes)} of 2 nodes reported", advice)]
    first, *others = nodes
    return [
        check_home(nodes, directory, mark),
        check_versions(first, others),
        check_names(first, others),
        *check_gpus(nodes, num_gpus),
        *check_measurement(messages, nodes),
    ]


def check_home(nodes: Sequence[Mapping[str, Any]], directory: Path, mark: str) -> Finding:
    """Return whether the nodes see the login node's file, and the login node theirs."""
    home = directory.parent
    for node in nodes:
        if "home_error" in node:
            return fail("home", f"{node['host']}: {node['home_error']}", ABOUT_HOME)
        if not node["sees_home"]:
            return fail("home", f"{node['host']} does not see a file written here in {home}", ABOUT_HOME)
        if not (directory / f"{mark}-{node['number']}").is_file():
            return fail("home", f"a file written by {node['host']} in {home} is not seen here", ABOUT_HOME)
    return ok("home", f"{home} is one directory here and on {_hosts(nodes)}")


def check_versions(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Finding:
    """Return whether all nodes have the same environment."""
    for node in others:
        problem = different_versions(first, node)
        if problem is not None:
            return fail("versions", *problem)
    return ok("versions", ", ".join(f"{name} {version}" for name, version in first["versions"].items() if version))


def check_names(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Finding:
    """Return whether the nodes can resolve and reach each other's names."""
    problems = [
        *(unknown_host(first, node) for node in others),
        *(unreachable_own_name(node) for node in (first, *others)),
    ]
    for problem in filter(None, problems):
        return fail("names", *problem)
    addresses = [f"{node['host']} is {', '.join(node['own_addresses'])}" for node in (first, *others)]
    return ok("names", "; ".join(addresses))


def check_gpus(nodes: Sequence[Mapping[str, Any]], num_gpus: int) -> list[Finding]:
    """Return whether each node sees the requested GPUs; no finding if none were requested."""
    if not num_gpus:
        return []
    for node in nodes:
        if node["num_gpus"] < num_gpus:
            advice = "check nvidia-smi in a job on that node, and install a torch with CUDA"
            return [fail("gpu", f"{node['host']} sees {node['num_gpus']} of {num_gpus} GPUs", advice)]
    return [ok("gpu", f"{num_gpus} on each of {_hosts(nodes)}")]


def check_clocks(nodes: Sequence[Mapping[str, Any]], offsets_s: Sequence[float]) -> Finding:
    """Return whether the nodes' clocks agree right after a barrier."""
    offsets = ", ".join(f"{node['host']} {value:+.3f} s" for node, value in zip(nodes[1:], offsets_s[1:], strict=True))
    found = f"compared with {nodes[0]['host']}: {offsets}"
    if max(map(abs, offsets_s)) > MAX_CLOCK_OFFSET_S:
        return warn("clock", found, "synchronize the clocks of all nodes (chrony, systemd-timesyncd)")
    return ok("clock", found)


def check_measurement(messages: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the clock offsets and the speed of the all-reduce, or why they are missing."""
    by_kind = {message["kind"]: message for message in reversed(messages)}
    if error := by_kind.get("error"):
        advice = "nodes must reach each other on all ports above 1024; see `names`, and GLOO_SOCKET_IFNAME"
        return [fail("all-reduce", f"{error['host']}: {error['error']}", advice)]
    measured = by_kind.get("measurement")
    if measured is None:
        advice = "the program of the first node ended early: check the partition's memory and time limits"
        return [fail("all-reduce", "no node reported a measurement", advice)]
    speed = f"{measured['bytes_per_s'] / 1e6:,.0f} MB/s for {measured['num_bytes'] / 2**20:g} MiB"
    traffic = f"{measured['interface']} ({measured['interface_bytes'] / 1e6:,.0f} MB)"
    reduced = ok("all-reduce", f"{measured['backend']}: {speed} per node, over {traffic}")
    return [check_clocks(nodes, measured["clock_offsets_s"]), reduced]


def _hosts(nodes: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(str(node["host"]) for node in nodes)
