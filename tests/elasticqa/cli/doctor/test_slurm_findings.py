"""Findings from the messages of the check job's nodes."""

from pathlib import Path
from typing import Any

import pytest

from elasticqa.cli.doctor.finding import Finding
from elasticqa.cli.doctor.slurm_findings import check_clocks, findings_of
from tests.support.nodes import MEASUREMENT, node, node_message


def found(home: Path, *messages: dict[str, Any], num_gpus: int = 0, writers: tuple[int, ...] = (0, 1)) -> list[Finding]:
    """Return the findings after the nodes in ``writers`` have written to the home directory."""
    (home / "slurm").mkdir()
    for number in writers:
        (home / "slurm" / f"mark-{number}").touch()
    return findings_of(messages, home / "slurm", "mark", num_gpus)


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_good_cluster_is_ok_with_its_measurements(tmp_path: Path) -> None:
    findings = by_check(found(tmp_path, node_message(1), MEASUREMENT, node_message(0), num_gpus=2))
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("home", "versions", "names", "gpu", "clock", "all-reduce"), "ok"
    )
    assert findings["home"].found == f"{tmp_path} is one directory here and on node1 and node2"
    assert findings["versions"].found == "python 3.11.7, torch 2.13.0"
    assert findings["names"].found == "node1 is 10.0.0.1; node2 is 10.0.0.2"
    assert findings["clock"].found == "compared with node1: node2 +0.250 s"
    assert findings["all-reduce"].found == "gloo: 500 MB/s for 16 MiB per node, over eth0 (200 MB)"


@pytest.mark.parametrize(
    ("check", "changes", "expected"),
    [
        ("home", {"sees_home": False}, "node2 does not see a file written here in"),
        ("home", {"sees_home": False, "home_error": "read-only"}, "node2: read-only"),
        ("versions", {"versions": {"python": "3.12.0"}}, "python is 3.11.7 on node1 and 3.12.0 on node2, torch is"),
        ("names", {"finds_first": False}, "node2 cannot resolve the name node1"),
        ("names", {"own_addresses": ["127.0.1.1"]}, "node2 resolves its own name to 127.0.1.1"),
        ("gpu", {"num_gpus": 1}, "node2 sees 1 of 2 GPUs"),
    ],
)
def test_problem_of_a_node_fails_its_check_only(
    check: str, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    findings = by_check(found(tmp_path, node_message(0), node_message(1, **changes), MEASUREMENT, num_gpus=2))
    assert findings[check].status == "fail"
    assert findings[check].found.startswith(expected)
    assert {name for name, finding in findings.items() if finding.status != "ok"} == {check}


def test_file_of_a_node_that_is_not_seen_here_fails(tmp_path: Path) -> None:
    findings = by_check(found(tmp_path, node_message(0), node_message(1), MEASUREMENT, writers=(0,)))
    assert findings["home"].found == f"a file written by node2 in {tmp_path} is not visible here"


def test_gpus_are_not_checked_unless_requested(tmp_path: Path) -> None:
    assert "gpu" not in by_check(found(tmp_path, node_message(0, num_gpus=0), node_message(1, num_gpus=0), MEASUREMENT))


def test_failed_connection_is_shown_with_the_node_that_saw_it(tmp_path: Path) -> None:
    error = {"kind": "error", "host": "node2", "error": "timed out"}
    findings = by_check(found(tmp_path, node_message(0), node_message(1), error))
    assert (findings["all-reduce"].status, findings["all-reduce"].found) == ("fail", "node2: timed out")
    assert "clock" not in findings


def test_silent_node_is_a_failure(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, node_message(0))
    assert (finding.status, finding.found) == ("fail", "only 1 of 2 nodes reported")


def test_missing_measurement_is_a_failure(tmp_path: Path) -> None:
    assert by_check(found(tmp_path, node_message(0), node_message(1)))["all-reduce"].status == "fail"


@pytest.mark.parametrize(("offset_s", "status"), [(0.9, "ok"), (-0.9, "ok"), (1.1, "warn"), (-90.0, "warn")])
def test_clocks_may_differ_by_a_second(offset_s: float, status: str) -> None:
    assert check_clocks([node(0), node(1)], [0.0, offset_s]).status == status
