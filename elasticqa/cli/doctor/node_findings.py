"""What the nodes of the check job told, as findings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticqa.cli.doctor.finding import Finding, fail, ok, warn
from elasticqa.elastic.compatibility import ABOUT_HOME, different_versions, unknown_first_host, unreachable_own_name

LARGEST_OFFSET_S = 1.0


def findings_of(messages: Sequence[Mapping[str, Any]], directory: Path, mark: str, num_gpus: int) -> list[Finding]:
    """Return a finding for each subject.

    Args:
        messages: of the nodes, by ``kind``.
        directory: where this node left a file of the name ``mark``, and each other one a file of that name and its
            number.
        mark: name of the file.
        num_gpus: that each node must see.
    """
    nodes = sorted((line for line in messages if line["kind"] == "node"), key=lambda node: int(node["number"]))
    if len(nodes) < 2:
        advice = "see that the environment of this command is there on every node: srun -N 2 with its python"
        return [fail("nodes", f"only {len(nodes)} told of itself", advice)]
    first, *others = nodes
    return [
        check_home(nodes, directory, mark),
        check_versions(first, others),
        check_names(first, others),
        *check_gpus(nodes, num_gpus),
        *_measured(messages, nodes),
    ]


def check_home(nodes: Sequence[Mapping[str, Any]], directory: Path, mark: str) -> Finding:
    """Return whether a file of this node is seen on the others, and theirs here."""
    home = directory.parent
    for node in nodes:
        if "home_error" in node:
            return fail("home", f"{node['host']}: {node['home_error']}", ABOUT_HOME)
        if not node["sees_home"]:
            return fail("home", f"{node['host']} does not see what is written here in {home}", ABOUT_HOME)
        if not (directory / f"{mark}-{node['number']}").is_file():
            return fail("home", f"what {node['host']} writes in {home} is not seen here", ABOUT_HOME)
    return ok("home", f"{home} is one directory here and on {_hosts(nodes)}")


def check_versions(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Finding:
    """Return whether all nodes have the same environment."""
    for node in others:
        complaint = different_versions(first, node)
        if complaint is not None:
            return fail("versions", *complaint)
    return ok("versions", ", ".join(f"{name} {version}" for name, version in first["versions"].items() if version))


def check_names(first: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Finding:
    """Return whether nodes find each other."""
    complaints = [
        *(unknown_first_host(first, node) for node in others),
        *(unreachable_own_name(node) for node in (first, *others)),
    ]
    for complaint in filter(None, complaints):
        return fail("names", *complaint)
    addresses = [f"{node['host']} is {', '.join(node['own_addresses'])}" for node in (first, *others)]
    return ok("names", "; ".join(addresses))


def check_gpus(nodes: Sequence[Mapping[str, Any]], num_gpus: int) -> list[Finding]:
    """Return whether each node sees the GPUs that were asked for; nothing where none were."""
    if not num_gpus:
        return []
    for node in nodes:
        if node["num_gpus"] < num_gpus:
            advice = "see nvidia-smi in a job on that node, and install a torch with CUDA"
            return [fail("gpu", f"{node['host']} sees {node['num_gpus']} of {num_gpus} GPUs", advice)]
    return [ok("gpu", f"{num_gpus} on each of {_hosts(nodes)}")]


def check_clocks(nodes: Sequence[Mapping[str, Any]], offsets_s: Sequence[float]) -> Finding:
    """Return whether the nodes' clocks agree, as seen right after a barrier."""
    told = ", ".join(f"{node['host']} {offset:+.3f} s" for node, offset in zip(nodes[1:], offsets_s[1:], strict=True))
    if max(map(abs, offsets_s)) > LARGEST_OFFSET_S:
        advice = "synchronize the clocks (chrony, systemd-timesyncd) of all nodes"
        return warn("clock", f"against {nodes[0]['host']}: {told}", advice)
    return ok("clock", f"against {nodes[0]['host']}: {told}")


def _measured(messages: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    for line in messages:
        if line["kind"] == "trouble":
            advice = "nodes must reach each other on all ports above 1024; see names, and GLOO_SOCKET_IFNAME"
            return [fail("all-reduce", f"{line['host']}: {line['error']}", advice)]
    for line in messages:
        if line["kind"] == "measured":
            speed = f"{line['bytes_per_s'] / 1e6:,.0f} MB/s for {line['num_bytes'] / 2**20:g} MiB"
            moved = f"{line['interface']} ({line['interface_bytes'] / 1e6:,.0f} MB went through it)"
            reduced = ok("all-reduce", f"{line['backend']}: {speed} a node, over {moved}")
            return [check_clocks(nodes, line["clock_offsets_s"]), reduced]
    advice = "the first node's program ended early: see the memory and time limits of the partition"
    return [fail("all-reduce", "no node told of it", advice)]


def _hosts(nodes: Sequence[Mapping[str, Any]]) -> str:
    return " and ".join(str(node["host"]) for node in nodes)
