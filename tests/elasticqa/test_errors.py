"""Messages of errors."""

import pickle

from elasticqa.errors import DataError, Place, shown


def test_message_of_a_data_error_has_place_and_rule() -> None:
    error = DataError(Place("a.json", 3, "Oder", 2, 5, "q", "answers[0].text"), "is missing")
    expected = "a.json, article 3 ('Oder'), paragraph 2, question 5, id 'q', field answers[0].text: is missing"
    assert str(error) == expected


def test_message_of_a_file_error_has_the_file_only() -> None:
    assert str(DataError(Place("a.json"), "is not JSON")) == "a.json: is not JSON"


def test_data_error_is_pickled_with_its_place() -> None:
    error = DataError(Place("a.json", article=1), "is missing")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.place) == (str(error), error.place)


def test_shown_value_is_one_short_line() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 63
    assert shown(nested) == "<list>"
    assert shown(10**5000) == "<int>"
