"""The runs of a small research group: repeats at several sizes, and killed, failed and running runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.dashboard_data import AttemptSpec, RunSpec, ulid, write_run
from tests.support.dashboard_traces import CPU_PROFILE, gpu_profile

_CONTEXT = (
    "The Forth Bridge is a cantilever railway bridge across the Firth of Forth. Construction began in 1882 and the "
    "bridge was opened on 4 March 1890 by the Prince of Wales. It spans 2,467 metres."
)


def _answer(number: int, question: str, gold: str, prediction: str, f1: float) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "question": question,
        "context": _CONTEXT,
        "answers": [gold, gold],
        "prediction": prediction,
        "start": _CONTEXT.find(prediction),
        "score": 7.25,
        "em": int(f1 == 1),
        "f1": f1,
    }


ANSWERS = tuple(
    _answer(number, *answer)
    for number, answer in enumerate(
        [
            ("When was the bridge opened?", "4 March 1890", "4 March 1890", 1.0),
            ("Who opened it?", "the Prince of Wales", "Prince of Wales. It spans 2,467 metres", 0.55),
            ("When did construction begin?", "1882", "1890", 0.0),
        ]
        * 9
    )
)
"""27 questions, 9 of them right."""


def write_lab(runs_dir: Path, now: float) -> None:
    """Write 32 runs: repeats at several sizes, and killed, failed and running runs.

    Args:
        runs_dir: gets one directory per run.
        now: Unix seconds; the runs are in the hours before it.
    """
    sizes = (
        ("none", 1, 1, 24, 0.0200),
        ("ddp", 2, 1, 24, 0.0112),
        ("ddp", 4, 1, 24, 0.0064),
        ("ddp", 4, 2, 96, 0.0212),
        ("fsdp", 4, 1, 24, 0.0071),
    )
    number = 0
    for parallel, world_size, num_nodes, batch, step_time_s in sizes:
        for repeat in range(6 if parallel != "fsdp" else 3):
            number += 1
            spread = 1 + 0.02 * ((repeat * 7) % 5 - 2)
            write_run(
                runs_dir,
                RunSpec(
                    run_id=ulid(number),
                    attempts=(AttemptSpec(1, 200, now - 90_000 + 900 * number),),
                    world_size=world_size,
                    num_nodes=num_nodes,
                    parallel=parallel,
                    global_batch_size=batch,
                    num_steps=200,
                    step_time_s=step_time_s * spread * 10,
                    seed=number,
                    profile=gpu_profile(world_size) if repeat == 0 else None,
                    tags=("scaling",) if repeat == 0 else (),
                ),
            )
    write_run(
        runs_dir,
        RunSpec(
            run_id=ulid(100),
            name="preempted twice, then done",
            attempts=(
                AttemptSpec(1, 130, now - 40_000, None),
                AttemptSpec(101, 160, now - 39_800, "preempted", "SIGUSR1: time limit near", world_size=2, num_nodes=1),
                AttemptSpec(161, 200, now - 39_600),
            ),
            world_size=4,
            num_nodes=2,
            step_time_s=0.2,
            tags=("elastic", "chaos"),
            profile=gpu_profile(4),
            answers=ANSWERS,
        ),
    )
    on_cpu = RunSpec(
        ulid(101),
        (AttemptSpec(1, 60, now - 3_000),),
        device_type="cpu",
        device_name="Intel(R) Xeon(R) Platinum 8480+",
        recipe="demo",
        step_time_s=0.6,
        num_steps=60,
        profile=CPU_PROFILE,
    )
    write_run(runs_dir, on_cpu)
    silent = (AttemptSpec(1, 40, now - 7_000, None),)
    write_run(runs_dir, replace(on_cpu, run_id=ulid(103), attempts=silent, name="lost overnight"))
    write_run(
        runs_dir,
        RunSpec(
            ulid(102),
            (AttemptSpec(1, 12, now - 2_000, "failed", "OutOfMemoryError: CUDA out of memory"),),
            name="BERT-large without checkpointing",
            world_size=2,
            step_time_s=0.5,
        ),
    )
    running = RunSpec(ulid(104), (AttemptSpec(1, 120, now - 40, None),), name="learning rate 5e-5", step_time_s=0.2)
    write_run(runs_dir, running)
