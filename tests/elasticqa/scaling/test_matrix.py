from collections import Counter
from dataclasses import replace

import pytest

from elasticqa.config.command_line import parse_config
from elasticqa.errors import ConfigError
from elasticqa.scaling.matrix import REFERENCE, Cell, StudyMatrix, check_work, numbers, strategies
from tests.support.scaling import MATRIX


def test_matrix_has_every_combination_and_the_reference_first() -> None:
    cells = MATRIX.cells()
    assert cells[0] == REFERENCE
    assert [cell.name for cell in cells[1:]] == [
        f"{strategy}-{nodes}x{nproc}" for strategy in ("ddp", "fsdp") for nodes in (1, 2) for nproc in (1, 2)
    ]


def test_weak_cells_grow_with_the_world_and_one_process_is_measured_once() -> None:
    names = [cell.name for cell in replace(MATRIX, mode="both", strategies=("ddp",), nodes=(1,)).cells()]
    assert names == ["none-1x1", "ddp-1x1", "ddp-1x2", "ddp-1x2-weak"]


def test_every_round_has_every_cell_once_in_a_random_order_set_by_the_study_id() -> None:
    slots = MATRIX.slots("A")
    size = len(MATRIX.cells())
    rounds = [slots[start : start + size] for start in range(0, len(slots), size)]
    assert [{slot.repeat for slot in part} for part in rounds] == [{1}, {2}, {3}]
    assert all({slot.cell for slot in part} == set(MATRIX.cells()) for part in rounds)
    assert slots == MATRIX.slots("A")
    assert slots != MATRIX.slots("B")
    assert [slot.cell for slot in rounds[1]] != [slot.cell for slot in rounds[2]]


def test_largest_cell_is_submitted_first() -> None:
    assert MATRIX.slots("A")[0].cell.world_size == 4


def test_strong_cells_have_work_and_seed_of_the_reference() -> None:
    config = MATRIX.config()
    configs = [parse_config(MATRIX.flags_of(cell, config)) for cell in MATRIX.cells()]
    assert Counter((c.global_batch_size, c.max_train_features, c.seed, c.resume) for c in configs) == {
        (8, 40, config.seed, "none"): len(configs)
    }


def test_weak_cell_scales_batch_and_features_with_its_world_size() -> None:
    cell = Cell(strategy="ddp", num_nodes=2, nproc_per_node=2, scale=4)
    config = parse_config(MATRIX.flags_of(cell, MATRIX.config()))
    assert (config.global_batch_size, config.max_train_features) == (32, 160)


def test_batch_per_process_of_a_recipe_is_fixed_at_that_of_one_process() -> None:
    matrix = replace(MATRIX, flags=("--recipe", "distributed-10k"))
    config = parse_config(matrix.flags_of(Cell(strategy="ddp", num_nodes=2, nproc_per_node=2), matrix.config()))
    assert config.global_batch_size == matrix.config().micro_batch_size


def test_matrix_round_trips_through_json() -> None:
    assert StudyMatrix.of(MATRIX.to_dict()) == MATRIX


@pytest.mark.parametrize("flag", ["--parallel=ddp", "--resume", "--name=x"])
def test_option_set_by_the_study_is_refused(flag: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{flag.removesuffix('=ddp').removesuffix('=x')} after -- is set by the study"
    ):
        replace(MATRIX, flags=(flag, "none")).config()


def test_world_larger_than_the_batch_is_refused() -> None:
    matrix = replace(MATRIX, flags=("--global-batch-size=3",))
    with pytest.raises(ConfigError, match="global_batch_size=3 cannot feed world_size=4"):
        check_work(matrix, matrix.config(), num_train_features=100)


def test_weak_study_with_too_few_features_is_refused_with_a_number_that_fits() -> None:
    matrix = replace(MATRIX, mode="weak")
    with pytest.raises(ConfigError, match="give --max-train-features 25 or less"):
        check_work(matrix, matrix.config(), num_train_features=100)
    fitting = replace(matrix, flags=("--global-batch-size=8", "--max-train-features=25"))
    check_work(fitting, fitting.config(), num_train_features=100)


def test_weak_study_limited_by_steps_needs_no_feature_limit() -> None:
    matrix = replace(MATRIX, mode="weak", flags=("--global-batch-size=8", "--max-steps=3"))
    check_work(matrix, matrix.config(), num_train_features=100)
    with pytest.raises(ConfigError, match="weak scaling"):
        check_work(matrix, matrix.config(), num_train_features=90)


@pytest.mark.parametrize("text", ["", "0", "1,", "a", "-1", "1,2,10001", "99999999999", "1.5", "\u0662"])
def test_list_with_something_else_than_counts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--nodes=.*: write --nodes 1,2"):
        numbers(text, "--nodes")


def test_list_keeps_each_count_once() -> None:
    assert numbers("2,1,2", "--nodes") == (2, 1)


def test_unknown_strategy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'dpp' is not one of ddp, fsdp"):
        strategies("ddp,dpp")
