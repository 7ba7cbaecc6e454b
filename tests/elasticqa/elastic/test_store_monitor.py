"""Monitor of the rendezvous store: one that answers, a port that does not answer, and one that refuses."""

import queue
import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from elasticqa.elastic.store_monitor import StoreMonitor


def test_only_a_port_that_accepts_and_does_not_answer_is_a_lost_store() -> None:
    losses: queue.Queue[str] = queue.Queue()
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5), wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        port, refusing = silent.getsockname()[1], unused.getsockname()[1]
        monitors = [StoreMonitor("127.0.0.1", number, 6.0, losses.put) for number in (refusing, store.port, port)]
        for monitor in monitors:
            monitor.start()
        assert f"the rendezvous store at 127.0.0.1 port {port} has not answered for" in losses.get(timeout=60)
        for monitor in monitors:
            monitor.stop()
    assert losses.empty()
