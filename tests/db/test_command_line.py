"""Argument errors are one line."""

import pytest

from db.command_line import Parser


def parser() -> Parser:
    made = Parser("elasticqa thing", "Do a thing.")
    made.add_argument("run")
    made.add_argument("--limit", type=int)
    return made


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the following arguments are required: run"),
        (["a", "--limit", "many"], "argument --limit: invalid int value: 'many'"),
        (["a", "--lim", "3"], "unrecognized arguments: --lim 3"),
        (["a", "two\nlines"], "unrecognized arguments: two lines"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"elasticqa thing: {reason}; --help lists the options\n"
