"""A store that answers, a port where somebody does not, and one where nobody is yet."""

import queue
import socket
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from elasticqa.elastic.store_monitor import StoreWatch


def test_only_who_is_there_and_does_not_answer_is_lost() -> None:
    told: queue.Queue[str] = queue.Queue()
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=5), wait_for_workers=False)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        port, nobody = silent.getsockname()[1], unused.getsockname()[1]
        watches = [StoreWatch("127.0.0.1", number, 6.0, told.put) for number in (nobody, store.port, port)]
        for watch in watches:
            watch.start()
        assert f"the rendezvous store at 127.0.0.1 port {port} was not heard of for" in told.get(timeout=60)
        for watch in watches:
            watch.stop()
    assert told.empty()
