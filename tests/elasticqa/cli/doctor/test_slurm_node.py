"""Measurements of a node of the check job."""

from pathlib import Path

from elasticqa.cli.doctor.slurm_node import transferred_bytes


def test_transferred_bytes_are_counted_per_interface_and_port(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/dev").write_text(
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier\n"
        "    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
        "  eth0:700 2 0 0 0 0 0 0 30 3 0 0 0 0 0 0\n"
    )
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    (port / "port_xmit_data").write_text("5\n")
    (port / "port_rcv_data").write_text("6\n")
    assert transferred_bytes(tmp_path) == {"lo": 20, "eth0": 730, "mlx5_0 (InfiniBand)": 44}
