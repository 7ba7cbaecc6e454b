"""Memory of BERT-large with DDP and FSDP, with and without activation checkpointing, and the largest batch that fits.

Every feature has the full length, so that all ranks run out of memory at the same batch. Batches that do not fit are
really tried; since no process can continue after one, new processes search between it and the batch before.

With `--alone` one GPU runs rank 0 of several: the model is replicated or sharded and steps allocate as usual, but
there is no communication (torch's fake process group). The memory of NCCL itself is then not included.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, cast

from benchmarks.memory.rank import Fit, Request
from benchmarks.support.setup import Data, facts, model_name, parser, write

STRATEGIES = ("ddp", "fsdp")
RANK = "from benchmarks.memory.rank import main; main()"
"""Do not use -m: the message classes of a rank would be of module __main__ and differ from those here."""


class Ranks:
    """Processes that have done their imports and wait for a request; a batch that does not fit ends them."""

    def __init__(self, world_size: int, log: Path, *, is_alone: bool = False) -> None:
        """Start the processes, or only rank 0."""
        self.log = log
        self._connections: list[Connection[Any, Any]] = []
        self._processes = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        local_world_size = 1 if is_alone else world_size
        for rank in range(local_world_size):
            ours, theirs = Pipe()
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": local_world_size}
            ranks |= {"GROUP_RANK": 0, "GROUP_WORLD_SIZE": world_size // local_world_size, "MASTER_PORT": port}
            environment = {**os.environ, "MASTER_ADDR": "127.0.0.1"} | {k: str(v) for k, v in ranks.items()}
            with log.open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", RANK, str(theirs.fileno())],
                        env=environment,
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
            theirs.close()
            self._connections.append(ours)

    def fits(self, ask: Request, limit_s: float) -> list[Fit]:
        """Return the batches that fit, in the order of the request, each on the rank with the highest peak."""
        for connection in self._connections:
            connection.send(ask)
        found: dict[Connection[Any, Any], list[Fit]] = {connection: [] for connection in self._connections}
        deadline = time.monotonic() + limit_s
        at_work = set(found)
        while at_work and (ready := wait(at_work, max(0.0, deadline - time.monotonic()))):
            for connection in cast("list[Connection[Any, Any]]", ready):
                try:
                    found[connection].append(connection.recv())
                except (EOFError, ConnectionResetError):
                    at_work.remove(connection)
            if any(len(found[connection]) < len(ask.batches) for connection in found.keys() - at_work):
                # The other ranks wait for a rank that ran out of memory or failed.
                break
        return [
            max(of_ranks, key=lambda fit: fit.peak_memory_bytes or 0) for of_ranks in zip(*found.values(), strict=False)
        ]

    def stop(self) -> None:
        """Stop the processes."""
        for process in self._processes:
            process.kill()
            process.wait()


def main() -> None:
    """Measure the four cases, one after the other."""
    options = parser(__doc__ or "")
    options.add_argument("--model", default="bert-large", help="tiny, bert-base, bert-large or a directory")
    options.add_argument("--gpus", type=int, default=2)
    options.add_argument("--alone", action="store_true", help="run only rank 0 of these GPUs")
    options.add_argument("--reference", type=int, default=16, help="features per GPU for the peak memory")
    options.add_argument("--most", type=int, default=2048, help="largest features per GPU to try")
    options.add_argument("--limit", type=float, default=60, help="seconds of a search")
    given = options.parse_args()
    data = Data.of(given)
    data.features()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as logs:
        cases = [(parallel, recomputes) for recomputes in (False, True) for parallel in STRATEGIES]
        # Imports take longer than a search, so all processes are started at once.
        num_searches = 2 if given.most >= 2 * given.reference else 1
        searches = [
            [
                Ranks(given.gpus, Path(logs) / f"{number}-{search}.log", is_alone=given.alone)
                for search in range(num_searches)
            ]
            for number in range(len(cases))
        ]
        try:
            for (parallel, recomputes), own in zip(cases, searches, strict=True):
                results.append(_measure(own, data, given, parallel=parallel, recomputes=recomputes))
                write(given.results, results)
        finally:
            for ranks in (each for own in searches for each in own):
                ranks.stop()


def _measure(searches: list[Ranks], data: Data, given: Any, *, parallel: str, recomputes: bool) -> dict[str, Any]:
    """Return the measurement of a case: double the batch until it does not fit, then try quarters in between."""
    doubling = [given.reference]
    while doubling[-1] * 2 <= given.most:
        doubling.append(doubling[-1] * 2)
    first = searches[0].fits(Request(data, given.model, parallel, recomputes, doubling, given.alone), given.limit)
    # Ranks that wait in a collective hold memory.
    searches[0].stop()
    largest = first[-1].batch if first else 0
    second = []
    if first and largest < doubling[-1]:
        between = [largest + largest * quarter // 4 for quarter in (1, 2, 3)]
        second = searches[1].fits(Request(data, given.model, parallel, recomputes, between, given.alone), given.limit)
    for ranks in searches:
        ranks.stop()
    if not first:
        print(f"FAILED {parallel}: {searches[0].log.read_text(errors='replace')[-2000:]}", flush=True)
    best = (first + second)[-1] if first else None
    reference = first[0] if first else None
    row = {
        "what": "memory",
        "variant": f"elasticqa_{parallel}",
        "activation_checkpointing": recomputes,
        "model": model_name(given.model),
        "world_size": given.gpus,
        "is_alone": given.alone,
        "reference_batch": given.reference,
        "peak_memory_bytes": reference.peak_memory_bytes if reference else None,
        "peak_reserved_bytes": reference.peak_reserved_bytes if reference else None,
        "largest_batch": best.batch if best else None,
        "largest_batch_peak_memory_bytes": best.peak_memory_bytes if best else None,
        "local_parameter_bytes": reference.local_parameter_bytes if reference else None,
        "parameter_bytes": reference.parameter_bytes if reference else None,
        **facts(reference.card if reference else "unknown"),
    }
    print({name: row[name] for name in ("variant", "activation_checkpointing", "peak_memory_bytes", "largest_batch")})
    return row


if __name__ == "__main__":
    main()
