"""Facts of a node that are compared with those of the other nodes of its job."""

import os
import socket
from collections.abc import Mapping
from typing import Any

from elasticqa.distributed.facts import software_facts

SAME_EVERYWHERE = ("python", "torch", "cuda", "elasticqa", "transformers")


def node_facts(
    number: int, first_host: str, refusal: str | None, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the facts of this node.

    Args:
        number: of this node in its job, from 0.
        first_host: name of the first node.
        refusal: why this node cannot run the job, or None.
        environ: of this process.
    """
    host, versions = socket.gethostname(), software_facts()
    return {
        "number": number,
        "host": host,
        "finds_first": _addresses(first_host) != [],
        "own_addresses": _addresses(host),
        "chooses_interface": bool(environ.get("GLOO_SOCKET_IFNAME")),
        "versions": {name: versions[name] for name in SAME_EVERYWHERE},
        "refusal": refusal,
        "sees_home": True,
    }


def _addresses(host: str) -> list[str]:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in answers))
