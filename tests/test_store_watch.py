"""A store that answers, and a port that does not."""

import queue
import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from elasticqa.store_watch import StoreWatch


def test_store_that_does_not_answer_is_lost_and_one_that_does_is_not() -> None:
    told: queue.Queue[str] = queue.Queue()
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5), wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        watches = [StoreWatch("127.0.0.1", number, 6.0, told.put) for number in (store.port, port)]
        for watch in watches:
            watch.start()
            watch.start()
        assert f"the rendezvous store at 127.0.0.1 port {port} was not heard of for" in told.get(timeout=60)
        for watch in watches:
            watch.stop()
    assert told.empty()
