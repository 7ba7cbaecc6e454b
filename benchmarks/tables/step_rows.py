"""Tables in Markdown of where a step goes and of what a card can do; see `table_rows` for the others."""

from statistics import median
from typing import Any

from benchmarks.tables.table_rows import markdown_table, spread

Row = dict[str, Any]


def parts(rows: list[Row]) -> str:
    """Return where a step's time goes under the profiler, by kind of kernel; on a CPU, of operator."""
    names = list(dict.fromkeys(name for row in rows for name in row["categories_ms"]))
    lines = [
        ("**step, without profiler**", *(f"**{spread(row['step_ms'], '.2f')}**" for row in rows)),
        *((name, *(f"{row['categories_ms'].get(name, 0.0):.2f}" for row in rows)) for name in names),
    ]
    for name, key in (
        ("device busy", "busy_ms"),
        ("step waits for its batch", "data_wait_ms"),
        ("communication with nothing beside it", "exposed_communication_ms"),
        ("device idle", "idle_ms"),
    ):
        if any(key in row for row in rows):
            lines.append((name, *(f"{row[key]:.2f}" if key in row else "" for row in rows)))
    everywhere = set.intersection(*(set(row["nccl"].items()) for row in rows))
    return markdown_table(("ms", *(_title_of_parts(row, everywhere) for row in rows)), lines)


def _title_of_parts(row: Row, everywhere: set[tuple[str, str]]) -> str:
    """Return the head of a column; variables of NCCL that all columns have are left to the raw results."""
    title = f"{row['model']}, {row['parallel']} x {row['world_size']}, batch {row['global_batch_size']}"
    changes = [
        *(["layers compiled"] if row["is_compiled"] else []),
        *([f"exchange {row['exchange']}"] if row["parallel"] == "ddp" else []),
        *([] if row["bucket_mib"] is None else [f"buckets of {row['bucket_mib']:g} MiB"]),
        *(f"{name}={value}" for name, value in row["nccl"].items() if (name, value) not in everywhere),
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
    return markdown_table(("", "measured"), lines)
