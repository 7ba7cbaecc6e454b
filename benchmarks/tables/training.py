"""Markdown tables of training, evaluation, memory, checkpoints and quality: one function per kind of measurement."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, median, stdev
from typing import Any

Row = dict[str, Any]
REFERENCES = ("hf_bf16", "hf_fp32")
"""Variants to compare with on one device; the first that was measured is used."""
SINGLE = {"elasticqa": "elasticqa", "hf": "hf_bf16", "lightning": "lightning_bf16"}
"""First word of a variant on several GPUs -> the same trainer on one GPU."""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _gib(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 2**30:.1f}"


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Return the median, with minimum and maximum in brackets."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def training_table(rows: list[Row]) -> str:
    """Return features per second, fastest first within a size, and the ratio to a reference."""
    rate = {_size(row): median(row["features_per_s"]) for row in rows}
    ordered = sorted(rows, key=lambda row: (row["world_size"], row["global_batch_size"], -rate[_size(row)]))
    form = ",.0f" if min(rate.values()) >= 100 else ",.2f"
    return markdown_table(
        ("variant", "model", "GPUs", "global batch", "features/s", "ratio", "GiB allocated", "GiB reserved"),
        [
            (
                f"`{row['variant']}`",
                row["model"],
                str(row["world_size"]),
                str(row["global_batch_size"]),
                spread(row["features_per_s"], form),
                _multiple(row, rate),
                _gib(row["peak_memory_bytes"]),
                _gib(row.get("peak_reserved_bytes")),
            )
            for row in ordered
        ],
    )


def _size(row: Row) -> tuple[str, int, int]:
    return row["variant"], row["world_size"], row["global_batch_size"]


def _multiple(row: Row, rate: dict[tuple[str, int, int], float]) -> str:
    """Return the ratio to the reference; on several GPUs, the ratio to the same trainer on one GPU."""
    own, world_size, batch = rate[_size(row)], row["world_size"], row["global_batch_size"]
    if world_size == 1:
        for name in REFERENCES:
            if (reference := rate.get((name, 1, batch))) is not None:
                return f"{own / reference:.2f}x `{name}`"
        return ""
    single = SINGLE[row["variant"].partition("_")[0]]
    ratios = []
    for kind, alone in (("weak", batch // world_size), ("strong", batch)):
        if (reference := rate.get((single, 1, alone))) is not None:
            ratios.append(f"{own / reference:.2f}x one GPU, {kind}")
    return ", ".join(ratios)


def equality_table(rows: list[Row]) -> str:
    """Return the losses and their largest difference."""
    return markdown_table(
        ("model", "batch", "losses", "largest difference"),
        [
            (
                row["model"],
                str(row["global_batch_size"]),
                ", ".join(f"{loss:.4f}" for loss in row["losses"]),
                f"{row['largest_difference']:.1e}",
            )
            for row in rows
        ],
    )


def evaluation_table(rows: list[Row]) -> str:
    """Return features per second of evaluations."""
    return markdown_table(
        ("model", "precision", "features", "features/s", "total, s", "forward passes and spans, s"),
        [
            (
                row["model"],
                row["precision"],
                f"{row['num_features']:,}",
                spread(row["eval_features_per_s"]),
                f"{median(row['eval_time_s']):.2f}",
                f"{median(row['spans_time_s']):.2f}",
            )
            for row in rows
        ],
    )


def memory_table(rows: list[Row]) -> str:
    """Return peaks at one batch size, and the largest batch that fits."""
    ordered = sorted(rows, key=lambda row: (row["activation_checkpointing"], row["variant"]))
    return markdown_table(
        (
            "variant",
            "model",
            "GPUs",
            "activation checkpointing",
            "features per GPU: GiB allocated, reserved",
            "largest features per GPU: GiB allocated",
            "parameters per GPU, MiB (share)",
        ),
        [
            (
                f"`{row['variant']}`",
                row["model"],
                f"{row['world_size']}{', rank 0 alone' if row.get('is_alone') else ''}",
                "yes" if row["activation_checkpointing"] else "no",
                f"{row['reference_batch']}: {_gib(row['peak_memory_bytes'])}, {_gib(row['peak_reserved_bytes'])}",
                f"{row['largest_batch']}: {_gib(row['largest_batch_peak_memory_bytes'])}",
                f"{row['local_parameter_bytes'] / 2**20:,.1f} "
                f"({row['local_parameter_bytes'] / row['parameter_bytes']:.3f})",
            )
            for row in ordered
            if row["largest_batch"] is not None
        ],
    )


def stalls_table(rows: list[Row]) -> str:
    """Return how long a save blocks the steps, and how much longer the steps of an interval take."""
    return markdown_table(
        ("model", "strategy", "ranks", "MiB", "step blocked, ms: p50, p95, max", "save, s", "every", "added time"),
        [
            (
                row["model"],
                ", without ".join([row["parallel"], *row.get("left_out", [])]),
                str(row["world_size"]),
                f"{row['bytes'] / 2**20:,.0f}",
                f"{row['stall_p50_ms']:.1f}, {row['stall_p95_ms']:.1f}, {row['stall_max_ms']:.1f}",
                spread(row["save_time_s"], ".2f"),
                f"{row['every']:,} steps",
                f"{row['inflation_percent']:.2f}%",
            )
            for row in rows
        ],
    )


def resizes_table(rows: list[Row]) -> str:
    """Return losses after resuming a checkpoint with another strategy or world size."""
    return markdown_table(
        (
            "model",
            "precision",
            "saved by",
            "resumed as",
            "largest difference of a loss",
            "smallest without loading",
            "save, s",
            "restore, s",
            "MiB",
        ),
        [
            (
                row["model"],
                row["precision"],
                row["saved_by"],
                row["restored_by"],
                f"{row['largest_difference']:.1e}",
                f"{row['least_difference_unrestored']:.1e}" if "least_difference_unrestored" in row else "",
                f"{row['save_time_s']:.2f}",
                f"{row['restore_time_s']:.2f}",
                f"{row['bytes'] / 2**20:,.0f}",
            )
            for row in rows
        ],
    )


def _step_ms(row: Row) -> str:
    times = row.get("step_ms")
    return f"{times['mean']:.2f}, {times['p50']:.2f}" if times else ""


def recipe_table(rows: list[Row]) -> str:
    """Return the total time of each run and its parts, one column per run."""
    names = list(dict.fromkeys(name for row in rows for name in row["parts_s"]))
    lines = [
        ("**new process to EM and F1, s**", *(f"**{row['process_s']:.1f}**" for row in rows)),
        *((name, *(f"{row['parts_s'].get(name, 0.0):.1f}" for row in rows)) for name in names),
        ("steps, number", *(f"{row['num_steps']:,}" for row in rows)),
        ("step, ms: mean, median", *(_step_ms(row) for row in rows)),
    ]
    return markdown_table(("", *(f"{row['model']}, {row['variant']}" for row in rows)), lines)


def quality_table(rows: list[Row]) -> str:
    """Return EM and F1 of each seed, with means and standard deviations."""
    by_variant: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_variant[row["variant"]].append(row)
    lines = []
    for variant, of_seeds in by_variant.items():
        lines += [
            (f"`{variant}`", row["model"], str(row["seed"]), f"{row['em']:.2f}", f"{row['f1']:.2f}")
            for row in sorted(of_seeds, key=lambda row: row["seed"])
        ]
        if len(of_seeds) > 1:
            shown = [
                f"**{mean(row[name] for row in of_seeds):.2f}** (s {stdev(row[name] for row in of_seeds):.2f})"
                for name in ("em", "f1")
            ]
            lines.append((f"`{variant}`", of_seeds[0]["model"], "mean", *shown))
    return markdown_table(("variant", "model", "seed", "EM", "F1"), lines)
