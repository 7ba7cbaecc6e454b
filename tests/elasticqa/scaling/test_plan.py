from collections import Counter
from dataclasses import replace

import pytest

from elasticqa.config.command_line import parse_config
from elasticqa.errors import ConfigError
from elasticqa.scaling.plan import REFERENCE, Cell, Plan, check_work, numbers, strategies

PLAN = Plan(
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


def test_matrix_has_every_combination_and_the_reference_first() -> None:
    cells = PLAN.cells()
    assert cells[0] == REFERENCE
    assert [cell.name for cell in cells[1:]] == [
        f"{strategy}-{nodes}x{nproc}" for strategy in ("ddp", "fsdp") for nodes in (1, 2) for nproc in (1, 2)
    ]


def test_weak_cells_grow_with_the_world_and_one_process_is_measured_once() -> None:
    names = [cell.name for cell in replace(PLAN, mode="both", strategies=("ddp",), nodes=(1,)).cells()]
    assert names == ["none-1x1", "ddp-1x1", "ddp-1x2", "ddp-1x2-weak"]


def test_every_round_has_every_cell_once_in_an_order_of_the_study() -> None:
    slots = PLAN.slots("A")
    size = len(PLAN.cells())
    rounds = [slots[start : start + size] for start in range(0, len(slots), size)]
    assert [{slot.repeat for slot in part} for part in rounds] == [{1}, {2}, {3}]
    assert all({slot.cell for slot in part} == set(PLAN.cells()) for part in rounds)
    assert slots == PLAN.slots("A")
    assert slots != PLAN.slots("B")
    assert [slot.cell for slot in rounds[1]] != [slot.cell for slot in rounds[2]]


def test_largest_cell_is_the_first_of_all() -> None:
    assert PLAN.slots("A")[0].cell.world_size == 4


def test_strong_cells_do_the_work_of_the_reference_with_its_seed() -> None:
    config = PLAN.config()
    configs = [parse_config(PLAN.flags_of(cell, config)) for cell in PLAN.cells()]
    assert Counter((c.global_batch_size, c.max_train_features, c.seed, c.resume) for c in configs) == {
        (8, 40, config.seed, "none"): len(configs)
    }


def test_weak_cell_has_the_batch_and_the_features_of_its_world() -> None:
    cell = Cell(strategy="ddp", num_nodes=2, nproc_per_node=2, scale=4)
    config = parse_config(PLAN.flags_of(cell, PLAN.config()))
    assert (config.global_batch_size, config.max_train_features) == (32, 160)


def test_batch_a_process_of_a_recipe_is_fixed_at_that_of_one_process() -> None:
    plan = replace(PLAN, flags=("--recipe", "distributed-10k"))
    config = parse_config(plan.flags_of(Cell(strategy="ddp", num_nodes=2, nproc_per_node=2), plan.config()))
    assert config.global_batch_size == plan.config().micro_batch_size


def test_plan_is_the_same_after_its_file() -> None:
    assert Plan.of(PLAN.to_dict()) == PLAN


@pytest.mark.parametrize("flag", ["--parallel=ddp", "--resume", "--name=x"])
def test_flag_that_the_study_sets_is_refused(flag: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{flag.removesuffix('=ddp').removesuffix('=x')} after -- is set by the study"
    ):
        replace(PLAN, flags=(flag, "none")).config()


def test_world_larger_than_the_batch_is_refused() -> None:
    plan = replace(PLAN, flags=("--global-batch-size=3",))
    with pytest.raises(ConfigError, match="global_batch_size=3 cannot feed world_size=4"):
        check_work(plan, plan.config(), num_features=100)


def test_weak_study_with_too_few_features_is_refused_with_a_number_that_fits() -> None:
    plan = replace(PLAN, mode="weak")
    with pytest.raises(ConfigError, match="give --max-train-features 25 or less"):
        check_work(plan, plan.config(), num_features=100)
    fitting = replace(plan, flags=("--global-batch-size=8", "--max-train-features=25"))
    check_work(fitting, fitting.config(), num_features=100)


def test_weak_study_limited_by_steps_needs_no_limit_of_features() -> None:
    plan = replace(PLAN, mode="weak", flags=("--global-batch-size=8", "--max-steps=3"))
    check_work(plan, plan.config(), num_features=100)
    with pytest.raises(ConfigError, match="weak scaling"):
        check_work(plan, plan.config(), num_features=90)


@pytest.mark.parametrize("text", ["", "0", "1,", "a", "-1", "1,2,10001", "99999999999", "1.5", "\u0662"])
def test_list_that_is_no_counts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--nodes=.*: write --nodes 1,2"):
        numbers(text, "--nodes")


def test_list_keeps_each_count_once() -> None:
    assert numbers("2,1,2", "--nodes") == (2, 1)


def test_unknown_strategy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'dpp' is none of ddp, fsdp"):
        strategies("ddp,dpp")
