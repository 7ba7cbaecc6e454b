"""The matrix of a scaling study."""

from elasticqa.scaling.matrix import StudyMatrix

MATRIX = StudyMatrix(
    strategies=("ddp", "fsdp"),
    nodes=(1, 2),
    nproc_per_node=(1, 2),
    repeats=3,
    mode="strong",
    scheduler="local_cwd",
    cfg="",
    cpus_per_process=1,
    memory_per_process=1024,
    gpus=False,
    flags=("--recipe", "demo", "--global-batch-size", "8", "--max-train-features", "40"),
)
