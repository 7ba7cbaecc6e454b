"""Labels of strategies, devices and groups of repeats."""

from dashboard.text.formats import UNKNOWN
from db.queries import Group, Setting

_STRATEGIES = {"none": "single process", "ddp": "DDP", "fsdp": "FSDP"}


def strategy(parallel: str | None) -> str:
    """Return the parallel strategy as people write it.

    >>> strategy("ddp"), strategy("none"), strategy(None)
    ('DDP', 'single process', 'unknown strategy')
    """
    if parallel is None:
        return "unknown strategy"
    return _STRATEGIES.get(parallel, parallel)


def short_strategy(parallel: str | None) -> str:
    """Return the strategy for a narrow column.

    >>> short_strategy("fsdp"), short_strategy("none")
    ('FSDP', 'single')
    """
    return UNKNOWN if parallel is None else strategy(parallel).removesuffix(" process")


def devices(world_size: int | None, num_nodes: int | None, device_type: str | None) -> str:
    """Return the number of devices, and of nodes if there are several.

    >>> devices(4, 2, "cuda"), devices(1, 1, "cuda"), devices(2, 1, "cpu"), devices(None, None, None)
    ('4 GPUs, 2 nodes', '1 GPU', '2 CPU processes', 'unknown devices')
    """
    if world_size is None:
        return "unknown devices"
    noun = {"cuda": "GPU", "cpu": "CPU process"}.get(device_type or "", "device")
    plural = {"CPU process": "CPU processes"}.get(noun, noun + "s")
    text = f"{world_size} {noun if world_size == 1 else plural}"
    return f"{text}, {num_nodes} nodes" if num_nodes is not None and num_nodes > 1 else text


def group(setting: Setting) -> str:
    """Return strategy and devices of a group."""
    return f"{strategy(setting.parallel)}, {devices(setting.world_size, setting.num_nodes, setting.device_type)}"


def row(of: Group) -> tuple[object, ...]:
    """Return all settings of a group that its table row shows."""
    setting = of.setting
    batch, precision, hardware = setting.global_batch_size, setting.precision, setting.device_name
    return group(setting), setting.provenance, setting.recipe, setting.model, batch, precision, hardware


def num_runs(of: Group) -> str:
    """Return the number of runs of a group, or what its authors report."""
    number = len(of.repeats)
    return of.as_reported or f"{number} {'run' if number == 1 else 'runs'}"
