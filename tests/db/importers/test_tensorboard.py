import struct
from pathlib import Path

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_tensor_proto
from torch.utils.tensorboard import SummaryWriter

from db.importers.fields import ImportFormatError
from db.importers.tfrecord import masked_crc32c, records
from tests.support.imported_results import known, lines_of, read_run

START = 1_795_000_000.0


def _written(folder: Path) -> Path:
    with SummaryWriter(str(folder)) as writer:
        writer.add_text("notes", "not a scalar", 0)
        writer.add_image("picture", np.zeros((3, 8, 8), dtype=np.uint8), 0)
        for step in (1, 2, 3):
            writer.add_scalar("train/loss", 1.0 / step, step, walltime=START + step)
            writer.add_scalar("train/learning_rate", 2.0**-step, step, walltime=START + step)
            writer.add_scalar("train/step_time", 0.5, step, walltime=START + step)
        writer.add_scalar("eval/f1", 75.5, 3, walltime=START + 10)
        writer.add_scalar("eval/em", 62.5, 3, walltime=START + 10)
        writer.add_scalar("something/else", 1.0, 3, walltime=START + 10)
    return folder


def _raw(path: Path, *messages: bytes) -> Path:
    """Write records with valid checksums and any content."""
    frames = []
    for message in messages:
        length = struct.pack("<Q", len(message))
        frames += [length, struct.pack("<I", masked_crc32c(length)), message, struct.pack("<I", masked_crc32c(message))]
    path.write_bytes(b"".join(frames))
    return path


def test_scalars_of_the_real_writer_become_steps_and_evaluations(tmp_path: Path) -> None:
    run = read_run(_written(tmp_path))
    assert [known(line) for line in lines_of(run, "step")] == [
        {
            "step": step,
            "loss": pytest.approx(1 / step),
            "learning_rate": 2.0**-step,
            "step_time_s": 0.5,
            "is_warmup": False,
        }
        for step in (1, 2, 3)
    ]
    assert [known(line) for line in lines_of(run, "evaluation")] == [
        {"step": 3, "split": "eval", "em": 62.5, "f1": 75.5}
    ]
    assert [t for kind, t, _ in run.facts if kind == "step"] == [START + 1, START + 2, START + 3]
    assert run.end["wall_clock_s"] == run.ended_at - run.started_at


def test_tensor_scalars_are_read_as_well(tmp_path: Path) -> None:
    with (tmp_path / "events.out.tfevents.1").open("wb") as stream:
        writer = RecordWriter(stream)
        for step, tensor in enumerate(
            [make_tensor_proto(np.float32(0.5)), make_tensor_proto(np.float64(0.25)), make_tensor_proto([0.125])]
        ):
            value = Summary.Value(tag="loss", tensor=tensor)
            writer.write(Event(wall_time=START, step=step, summary=Summary(value=[value])).SerializeToString())
    assert [line["loss"] for line in lines_of(read_run(tmp_path), "step")] == [0.5, 0.25, 0.125]


def test_epochs_of_either_convention_count_from_zero(tmp_path: Path) -> None:
    for name, tag, epochs in (("a", "train/epoch", (0.5, 1.0, 1.5)), ("b", "epoch", (0, 0, 1))):
        with SummaryWriter(str(tmp_path / name)) as writer:
            for step, epoch in enumerate(epochs, start=1):
                writer.add_scalar("loss", step, step)
                writer.add_scalar(tag, epoch, step)
        run = read_run(tmp_path / name)
        assert [line["epoch"] for line in lines_of(run, "step")] == [0, 0, 1]
        assert run.end["final_loss"] == 3.0


def test_nan_loss_becomes_null_and_an_event(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("train/loss", float("nan"), 4)
    run = read_run(tmp_path)
    assert lines_of(run, "step")[0]["loss"] is None
    assert lines_of(run, "event")[0]["data"]["steps"] == [4]


def test_event_files_of_one_folder_are_one_run(tmp_path: Path) -> None:
    for suffix, tag in ((".train", "train/loss"), (".eval", "eval/f1")):
        with SummaryWriter(str(tmp_path), filename_suffix=suffix) as writer:
            writer.add_scalar(tag, 2.0, 1)
    run = read_run(tmp_path)
    assert len(lines_of(run, "step")) == len(lines_of(run, "evaluation")) == 1


def test_records_are_those_that_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records"
    messages = [b"", b"x", bytes(range(256)) * 40]
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for message in messages:
            writer.write(message)
    assert [data for _, data in records(path)] == messages


def test_every_truncation_is_refused_or_ends_between_records(tmp_path: Path) -> None:
    (source,) = _written(tmp_path / "whole").iterdir()
    whole = source.read_bytes()
    ends = {position for position, _ in records(source)} | {len(whole)}
    path = tmp_path / "events.out.tfevents.cut"
    for length in range(1, len(whole), 11):
        path.write_bytes(whole[:length])
        if length not in ends:
            with pytest.raises(ImportFormatError, match="the file is cut off"):
                read_run(path)


def test_every_changed_byte_is_detected(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        writer.add_scalar("train/loss", 1.0, 1)
    (source,) = (tmp_path / "whole").iterdir()
    whole = source.read_bytes()
    path = tmp_path / "events.out.tfevents.changed"
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ImportFormatError, match="checksum"):
            read_run(path)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"\x0b", "wire type 3"),
        (b"\x2a\x7f", "longer than its message"),
        (b"\x10" + b"\xff" * 11, "longer than 64 bits"),
        (b"\x10", "cut off"),
        (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x2a\x00", "not a count below 2^31"),
        (b"\x2a\x06\x0a\x04\x0a\x02\xff\xfe", "utf-8"),
        (b"\x2a\x0b\x0a\x09\x0a\x04loss\x12\x01x", "unpack"),
    ],
)
def test_record_that_is_no_event_is_refused_with_its_position(tmp_path: Path, message: bytes, problem: str) -> None:
    path = _raw(tmp_path / "events.out.tfevents.0", b"", message)
    with pytest.raises(ImportFormatError) as caught:
        read_run(path)
    assert problem in str(caught.value)
    assert "byte 16" in str(caught.value)


def test_record_of_any_claimed_size_needs_little_memory(tmp_path: Path) -> None:
    length = struct.pack("<Q", 2**40)
    path = tmp_path / "events.out.tfevents.0"
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)))
    with pytest.raises(ImportFormatError, match="at most 64 MiB"):
        read_run(path)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "is empty"), (b"\x89PNG" * 50, "the checksum of a record's length is wrong")]
)
def test_file_of_another_format_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "events.out.tfevents.0"
    path.write_bytes(content)
    with pytest.raises(ImportFormatError, match=problem):
        read_run(path)


def test_events_without_a_known_scalar_are_refused(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("accuracy", 1.0, 1)
    with pytest.raises(ImportFormatError, match="no scalar with the name of a loss"):
        read_run(tmp_path)
