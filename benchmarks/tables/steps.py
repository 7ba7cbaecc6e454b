"""Markdown tables of the parts of a training step and of the limits of a GPU."""

from statistics import median
from typing import Any

from benchmarks.tables.training import markdown_table, spread

Row = dict[str, Any]


def parts_table(rows: list[Row]) -> str:
    """Return the time of a step by kind of kernel (on a CPU, of operator), from the profiler."""
    names = list(dict.fromkeys(name for row in rows for name in row["categories_ms"]))
    lines = [
        ("**step, without profiler**", *(f"**{spread(row['step_ms'], '.2f')}**" for row in rows)),
        *((name, *(f"{row['categories_ms'].get(name, 0.0):.2f}" for row in rows)) for name in names),
    ]
    for name, key in (
        ("device busy", "busy_ms"),
        ("wait for the batch", "data_wait_ms"),
        ("exposed communication", "exposed_communication_ms"),
        ("device idle", "idle_ms"),
    ):
        if any(key in row for row in rows):
            lines.append((name, *(f"{row[key]:.2f}" if key in row else "" for row in rows)))
    everywhere = set.intersection(*(set(row["nccl"].items()) for row in rows))
    return markdown_table(("ms", *(_title_of_parts(row, everywhere) for row in rows)), lines)


def _title_of_parts(row: Row, everywhere: set[tuple[str, str]]) -> str:
    """Return the title of a column, without the NCCL variables that are equal in all columns."""
    title = f"{row['model']}, {row['parallel']} x {row['world_size']}, batch {row['global_batch_size']}"
    changes = [
        *(["layers compiled"] if row["is_compiled"] else []),
        *([f"reducer {row['exchange']}"] if row["parallel"] == "ddp" else []),
        *([] if row["bucket_mib"] is None else [f"buckets of {row['bucket_mib']:g} MiB"]),
        *(f"{name}={value}" for name, value in row["nccl"].items() if (name, value) not in everywhere),
    ]
    return ", ".join([title, *changes])


def ceilings_table(rows: list[Row]) -> str:
    """Return the highest rates of a GPU, and the least time of a step that follows from them."""
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
    return markdown_table(("", "measured"), lines)
