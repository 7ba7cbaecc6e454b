from pathlib import Path

from elasticqa.profiling.trace.summary import summarize
from elasticqa.profiling.trace.text import as_text
from tests.support.traces import annotation, kernel, on_device, operator, runtime, write_trace


def _text(tmp_path: Path, events: list[dict[str, object]], **entries: object) -> str:
    return as_text(summarize(write_trace(tmp_path / "trace.json", events, **entries)))


def test_text_of_a_device_shows_times_and_shares(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#3", 0, 1000),
        operator("aten::mm", 0, 400),
        runtime("cudaGraphLaunch", 10, 100),
        kernel("void at::native::gemm(int)", 200, 500),
        on_device("gpu_memcpy", "Memcpy HtoD", 700, 50),
    ]
    lines = _text(tmp_path, events, distributedInfo={"rank": 1, "world_size": 4, "backend": "nccl"}).splitlines()
    assert lines[0] == "Trace, rank 1 of 4 (nccl), 1.000 ms, 5 events"
    assert lines[1] == "1 step: mean 1.000 ms, from 1.000 to 1.000 ms"
    assert "Device 0: 1 kernel" in lines
    squeezed = [" ".join(line.split()) for line in lines]
    assert "busy 0.550 ms 55.0%" in squeezed
    assert "compute 0.500 ms 50.0%" in squeezed
    assert "idle 0.450 ms 45.0%" in squeezed
    assert "host-bound 0.200 ms 20.0%" in squeezed
    assert "launching 0.100 ms (1 launch, 1 of CUDA graphs)" in squeezed
    assert "gemm(int) 0.500 ms 1" in squeezed
    assert "aten::mm 0.300 ms 1 0.400 ms" in squeezed


def test_text_without_device_events_says_so(tmp_path: Path) -> None:
    text = _text(tmp_path, [operator("aten::mm", 0, 1), operator("aten::mm", 5, -1)])
    assert "No device events: the activity of devices is unknown." in text
    assert "Kernels" not in text
    assert "1 event without a valid duration is left out" in text


def test_long_time_is_separated_from_its_name(tmp_path: Path) -> None:
    text = _text(tmp_path, [operator("aten::mm", 0, 9_610_384)])
    assert "summed over threads 9,610.384 ms" in text


def test_text_of_foreign_traces_fits_a_terminal(shared_data: Path) -> None:
    for trace in sorted((shared_data / "traces").iterdir()):
        lines = as_text(summarize(trace)).splitlines()
        assert max(map(len, lines)) <= 110
        assert len(lines) < 80
