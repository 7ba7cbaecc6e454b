"""Why nodes cannot train together, from the facts that each reports."""

from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic.compatibility import incompatibility
from tests.support.nodes import node

HOME = Path("/home/elasticqa")


def test_equal_nodes_are_compatible() -> None:
    assert incompatibility(node(0), [node(1), node(2)], HOME) == ""


def test_single_node_may_have_a_loopback_name() -> None:
    assert incompatibility(node(0, own_addresses=["127.0.1.1"]), [], HOME) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.12.0"}}, "torch is 2.13.0 on node1 and 2.12.0 on node3: "),
        ({"versions": {"python": "3.11.7"}}, "torch is 2.13.0 on node1 and None on node3: "),
        ({"sees_home": False}, "/home/elasticqa is not the same directory on node1 and node3: "),
        ({"finds_first": False}, "node3 cannot resolve the name node1"),
        ({"own_addresses": ["127.0.1.1"]}, "node3 resolves its own name to 127.0.1.1, where"),
        ({"own_addresses": []}, "node3 resolves its own name to nothing, where"),
        ({"refusal": "gpu=1 but torch sees 0"}, "node3: gpu=1 but torch sees 0"),
    ],
)
def test_difference_names_the_nodes_and_the_values_on_one_line(changes: dict[str, Any], expected: str) -> None:
    problem = incompatibility(node(0), [node(1), node(2, **changes)], HOME)
    assert problem.startswith(expected)
    assert len(problem.splitlines()) == 1


def test_loopback_name_is_allowed_with_a_chosen_interface() -> None:
    assert incompatibility(node(0), [node(1, own_addresses=["127.0.1.1"], chooses_interface=True)], HOME) == ""


def test_common_refusal_is_reported_without_a_host() -> None:
    assert incompatibility(node(0, refusal="no data"), [node(1, refusal="no data")], HOME) == "no data"


def test_refusal_of_a_node_comes_before_other_problems() -> None:
    others = [node(1, sees_home=False, refusal="home is not writable")]
    assert incompatibility(node(0), others, HOME) == "node2: home is not writable"
