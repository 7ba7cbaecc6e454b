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
    version_problems = [different_versions(first, node) for node in others]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items() if version)
    name_problems = [*(unknown_host(first, node) for node in others), *map(unreachable_own_name, nodes)]
    names = "; ".join(f"{node['host']} is {', '.join(node['own_addresses'])}" for node in nodes)
    hosts = " and ".join(str(node["host"]) for node in nodes)
    home = directory.parent
    findings = [
        _first(
            "home",
            [_home_problem(node, directory, mark) for node in nodes],
            f"{home} is one directory here and on {hosts}",
        ),
        _first("versions", version_problems, versions),
        _first("names", name_problems, names),
    ]
    if num_gpus:
        advice = "check nvidia-smi in a job on that node, and install a torch with CUDA"
        few = [node for node in nodes if node["num_gpus"] < num_gpus]
        problems = [(f"{node['host']} sees {node['num_gpus']} of {num_gpus} GPUs", advice) for node in few]
        findings.append(_first("gpu", problems, f"{num_gpus} on each of {hosts}"))
    return findings + check_measurement(messages, nodes)


def _first(check: str, problems: Sequence[tuple[str, str] | None], found: str) -> Finding:
    """Return a failure for the first problem, with its advice; ok with ``found`` if there is no problem."""
    return next((fail(check, *problem) for problem in problems if problem), ok(check, found))


def _home_problem(node: Mapping[str, Any], directory: Path, mark: str) -> tuple[str, str] | None:
    """Return why this node and the login node do not see each other's files."""
    host, home = node["host"], directory.parent
    if "home_error" in node:
        return f"{host}: {node['home_error']}", ABOUT_HOME
    if not node["sees_home"]:
        return f"{host} does not see a file written here in {home}", ABOUT_HOME
    if not (directory / f"{mark}-{node['number']}").is_file():
        return f"a file written by {host} in {home} is not visible here", ABOUT_HOME
    return None


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
