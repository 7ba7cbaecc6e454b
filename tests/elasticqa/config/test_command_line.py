"""The command line of a training run."""

import pytest

from elasticqa.config.command_line import parse_config
from elasticqa.config.train_config import TrainConfig
from elasticqa.errors import ConfigError


def test_empty_command_line_is_the_demo_recipe() -> None:
    config = parse_config([])
    assert (config.recipe, config.model, config.dataset) == ("demo", TrainConfig.model, "demo")


def test_options_change_a_recipe() -> None:
    changed = parse_config(["--recipe", "demo", "--epochs=7", "--dropout", "0.2", "--no-eval-before"])
    assert (changed.epochs, changed.dropout, changed.eval_before) == (7, 0.2, False)
    assert changed.learning_rate == parse_config([]).learning_rate


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--no-such-option=1"], "--no-such-option"),
        (["--epochs=many"], "--epochs"),
        (["--epochs"], "--epochs"),
        (["--parallel=both"], "--parallel"),
        (["--epochs=0"], "epochs=0 is too small"),
        (["--learning-rate=nan"], "learning_rate=nan"),
        (["--recipe=unheard-of"], "recipe='unheard-of'"),
        (["--recipe"], "--recipe"),
        (["stray"], "stray"),
    ],
)
def test_wrong_command_line_is_one_line_that_names_the_option(argv: list[str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(argv)
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_help_lists_every_option_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_config(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [name for name in TrainConfig().to_dict() if "--" + name.replace("_", "-") not in text] == []


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--name=bad\udcff name", "printable"),
        ("--foo=\x1b[2J", "printable"),
        ("--name=" + "x" * 5000, "printable"),
        ("--epochs=" + "9" * 400, "epochs is too large"),
        ("--seed=" + "9" * 400, "seed is too large"),
        ("--max-length=999999999999999999999999999999", "max_length is too large"),
        ("--keep-checkpoints=" + "9" * 30, "keep_checkpoints is too large"),
        ("--dataset=" + "a" * 300, "dataset has a part of over 255 bytes"),
        ("--resume=" + "a" * 300, "resume has a part of over 255 bytes"),
    ],
)
def test_unprintable_or_huge_argument_is_refused_in_one_printable_line(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_config([argument])
    assert str(caught.value).isprintable()
