"""Facts and messages of nodes before they train together."""

from typing import Any


def node(number: int, **changes: Any) -> dict[str, Any]:
    """Return the facts of a compatible node, with changes."""
    return {
        "number": number,
        "host": f"node{number + 1}",
        "finds_first": True,
        "own_addresses": [f"10.0.0.{number + 1}"],
        "chooses_interface": False,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "refusal": None,
        "sees_home": True,
        **changes,
    }


MEASUREMENT = {
    "kind": "measurement",
    "clock_offsets_s": [0.0, 0.25],
    "backend": "gloo",
    "num_bytes": 1 << 24,
    "bytes_per_s": 5e8,
    "interface": "eth0",
    "interface_bytes": 2e8,
}


def node_message(number: int, **changes: Any) -> dict[str, Any]:
    """Return the message of a node of the doctor's check job, with changes."""
    return {"kind": "node", "num_gpus": 2, **node(number), **changes}
