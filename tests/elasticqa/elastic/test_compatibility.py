"""Why nodes cannot train together, from what each tells of itself."""

from pathlib import Path
from typing import Any

import pytest

from elasticqa.elastic.compatibility import complaint_of
from tests.support.nodes import node

HOME = Path("/home/elasticqa")


def test_nodes_that_are_alike_are_no_complaint() -> None:
    assert complaint_of(node(0), [node(1), node(2)], HOME) == ""


def test_single_node_may_be_known_to_itself_only() -> None:
    assert complaint_of(node(0, own_addresses=["127.0.1.1"]), [], HOME) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.12.0"}}, "torch is 2.13.0 on node1 and 2.12.0 on node3: "),
        ({"versions": {"python": "3.11.7"}}, "torch is 2.13.0 on node1 and None on node3: "),
        ({"sees_home": False}, "/home/elasticqa is not the same directory on node1 and node3: "),
        ({"finds_first": False}, "node3 does not find node1 by its name"),
        ({"own_addresses": ["127.0.1.1"]}, "node3 resolves its own name to 127.0.1.1, where"),
        ({"own_addresses": []}, "node3 resolves its own name to nothing, where"),
        ({"refusal": "gpu=1 but torch sees 0"}, "node3: gpu=1 but torch sees 0"),
    ],
)
def test_difference_names_the_nodes_and_the_values_on_one_line(changes: dict[str, Any], expected: str) -> None:
    complaint = complaint_of(node(0), [node(1), node(2, **changes)], HOME)
    assert complaint.startswith(expected)
    assert len(complaint.splitlines()) == 1


def test_interface_that_is_chosen_needs_no_name() -> None:
    assert complaint_of(node(0), [node(1, own_addresses=["127.0.1.1"], chooses_interface=True)], HOME) == ""


def test_refusal_of_all_is_said_as_it_is() -> None:
    assert complaint_of(node(0, refusal="no data"), [node(1, refusal="no data")], HOME) == "no data"


def test_refusal_of_a_node_comes_before_what_follows_from_it() -> None:
    others = [node(1, sees_home=False, refusal="home is not writable")]
    assert complaint_of(node(0), others, HOME) == "node2: home is not writable"
