"""Tables in Markdown, one function a kind of measurement; the rows are those of one run of a script."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, median, stdev
from typing import Any

Row = dict[str, Any]
REFERENCES = ("hf_bf16", "hf_fp32")
"""What a variant is compared with on one device: the first that was measured."""
SINGLE = {"elasticqa": "elasticqa", "hf": "hf_bf16", "lightning": "lightning_bf16"}
"""First word of a variant on several GPUs -> the same trainer on one."""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _gib(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 2**30:.1f}"


def _spread(values: Sequence[float], form: str = ",.0f") -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def training(rows: list[Row]) -> str:
    """Return features per second, fastest first within a size, and what they are a multiple of."""
    rate = {_size(row): median(row["features_per_s"]) for row in rows}
    ordered = sorted(rows, key=lambda row: (row["world_size"], row["global_batch_size"], -rate[_size(row)]))
    form = ",.0f" if min(rate.values()) >= 100 else ",.2f"
    return _table(
        ("variant", "model", "GPUs", "global batch", "features/s", "is", "GiB allocated", "GiB reserved"),
        [
            (
                f"`{row['variant']}`",
                row["model"],
                str(row["world_size"]),
                str(row["global_batch_size"]),
                _spread(row["features_per_s"], form),
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
    """Return how many times the reference a variant reaches; on several GPUs also what one GPU of it would."""
    own, world_size, batch = rate[_size(row)], row["world_size"], row["global_batch_size"]
    if world_size == 1:
        for name in REFERENCES:
            if (reference := rate.get((name, 1, batch))) is not None:
                return f"{own / reference:.2f}x `{name}`"
        return ""
    single = SINGLE[row["variant"].partition("_")[0]]
    told = []
    for kind, alone in (("weak", batch // world_size), ("strong", batch)):
        if (reference := rate.get((single, 1, alone))) is not None:
            told.append(f"{own / reference:.2f}x one GPU, {kind}")
    return ", ".join(told)


def equality(rows: list[Row]) -> str:
    """Return how far losses are apart."""
    return _table(
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


def evaluation(rows: list[Row]) -> str:
    """Return features per second of evaluations."""
    return _table(
        ("model", "precision", "features", "features/s", "whole, s", "forward passes and spans, s"),
        [
            (
                row["model"],
                row["precision"],
                f"{row['num_features']:,}",
                _spread(row["eval_features_per_s"]),
                f"{median(row['eval_time_s']):.2f}",
                f"{median(row['spans_time_s']):.2f}",
            )
            for row in rows
        ],
    )


def memory(rows: list[Row]) -> str:
    """Return peaks at one batch, and the largest batch that fits."""
    ordered = sorted(rows, key=lambda row: (row["activation_checkpointing"], row["variant"]))
    return _table(
        (
            "variant",
            "model",
            "GPUs",
            "activation checkpointing",
            "features a GPU: GiB allocated, reserved",
            "most features a GPU: GiB allocated",
            "parameters on a GPU, MiB (share of all)",
        ),
        [
            (
                f"`{row['variant']}`",
                row["model"],
                str(row["world_size"]),
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


def stalls(rows: list[Row]) -> str:
    """Return for how long a save stops the steps, and what saves at an interval add."""
    return _table(
        ("model", "strategy", "ranks", "MiB", "stall, ms: p50, p95, most", "whole save, s", "every", "more time"),
        [
            (
                row["model"],
                row["parallel"],
                str(row["world_size"]),
                f"{row['bytes'] / 2**20:,.0f}",
                f"{row['stall_p50_ms']:.1f}, {row['stall_p95_ms']:.1f}, {row['stall_max_ms']:.1f}",
                _spread(row["save_time_s"], ".2f"),
                f"{row['every']:,} steps",
                f"{row['inflation_percent']:.2f}%",
            )
            for row in rows
        ],
    )


def resizes(rows: list[Row]) -> str:
    """Return how a checkpoint went on under another strategy or with other ranks."""
    return _table(
        (
            "model",
            "precision",
            "saved by",
            "goes on as",
            "largest difference of a loss",
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
                f"{row['save_time_s']:.2f}",
                f"{row['restore_time_s']:.2f}",
                f"{row['bytes'] / 2**20:,.0f}",
            )
            for row in rows
        ],
    )


def recipe(rows: list[Row]) -> str:
    """Return the whole time of each run and its parts, as columns."""
    names = list(dict.fromkeys(name for row in rows for name in row["parts_s"]))
    lines = [
        ("**new process to EM and F1, s**", *(f"**{row['process_s']:.1f}**" for row in rows)),
        *((name, *(f"{row['parts_s'].get(name, 0.0):.1f}" for row in rows)) for name in names),
        ("steps, number", *(f"{row['num_steps']:,}" for row in rows)),
    ]
    return _table(("", *(f"{row['model']}, {row['variant']}" for row in rows)), lines)


def quality(rows: list[Row]) -> str:
    """Return EM and F1 of each seed, and their means and standard deviations."""
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
    return _table(("variant", "model", "seed", "EM", "F1"), lines)


def parts(rows: list[Row]) -> str:
    """Return where a step's time goes under the profiler, by kind of kernel; on a CPU, of operator."""
    names = list(dict.fromkeys(name for row in rows for name in row["categories_ms"]))
    lines = [
        ("**step, without profiler**", *(f"**{_spread(row['step_ms'], '.2f')}**" for row in rows)),
        *((name, *(f"{row['categories_ms'].get(name, 0.0):.2f}" for row in rows)) for name in names),
    ]
    for name, key in (
        ("device busy", "busy_ms"),
        ("communication with nothing beside it", "exposed_communication_ms"),
        ("device idle", "idle_ms"),
    ):
        if any(key in row for row in rows):
            lines.append((name, *(f"{row[key]:.2f}" if key in row else "" for row in rows)))
    return _table(("ms", *(_title_of_parts(row) for row in rows)), lines)


def _title_of_parts(row: Row) -> str:
    title = f"{row['model']}, {row['parallel']} x {row['world_size']}, batch {row['global_batch_size']}"
    changes = [
        *([] if row["exchanges"] else ["no exchange"]),
        *([] if row["bucket_mib"] is None else [f"buckets of {row['bucket_mib']:g} MiB"]),
        *(["averaged by NCCL"] if row["averages"] else []),
        *(f"{name}={value}" for name, value in row["nccl"].items()),
    ]
    return ", ".join([title, *changes])


def ceilings(rows: list[Row]) -> str:
    """Return what a card does at most, and the least time of a step that follows from it."""
    lines = []
    for row in rows:
        products, copies, needs = row["products_tflop_per_s"], row["copies_gb_per_s"], row["needs"]
        lines += [(f"{name}, GB/s", f"{value:,.0f}") for name, value in copies.items()]
        lines += [(f"product {name}, TFLOP/s", f"{value:,.3g}") for name, value in products.items()]
        lines += [
            (f"sent by {row['world_size']}, {name}, GB/s", f"{v:,.0f}") for name, v in row["sent_gb_per_s"].items()
        ]
        compute_ms = 1e3 * needs["operations"] / (median(products.values()) * 1e12)
        bytes_ms = 1e3 * needs["bytes"] / (copies["copy, read and written"] * 1e9)
        lines += [
            (
                f"products of a step of {row['model']}, {row['tokens']:,} tokens, at the median of these, ms",
                f"{compute_ms:.2f}",
            ),
            ("weights, gradients and moments of a step at the speed of a copy, ms", f"{bytes_ms:.2f}"),
        ]
    return _table(("", "measured"), lines)
