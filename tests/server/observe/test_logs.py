"""What a record looks like: one line, and of an exception only its type and where it was raised."""

import json
import logging

import pytest

from server.observe import LogFormatter, describe


def failed() -> BaseException:
    try:
        try:
            raise KeyError("CANARY")
        except KeyError as error:
            raise ValueError("CANARY too") from error
    except ValueError as error:
        return error


def record(message: str, error: BaseException | None = None, **fields: object) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("some.place", logging.ERROR, __file__, 1, message, (), info)
    made.fields = fields
    return made


@pytest.mark.parametrize("formatter", [LogFormatter("json"), LogFormatter("text")])
def test_a_record_is_one_line_without_what_the_exception_says(formatter: logging.Formatter) -> None:
    line = formatter.format(record("it failed\nfuture: <Task exception=KeyError('CANARY')>", failed(), tokens=3))
    assert "\n" not in line
    assert "CANARY" not in line
    assert "it failed" in line
    assert "ValueError at " in line
    assert " from KeyError at " in line
    assert "test_logs.py" in line


def test_json_holds_the_fields() -> None:
    fields = json.loads(LogFormatter("json").format(record("request", status=200, route="/vote/wrf")))
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "error",
        "logger": "some.place",
        "message": "request",
        "status": 200,
        "route": "/vote/wrf",
    }


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert describe(KeyError("CANARY")) == "KeyError at no place known"


def test_a_cause_that_was_set_aside_is_not_described() -> None:
    error = failed()
    assert "KeyError" in describe(error)
    error.__cause__, error.__suppress_context__ = None, True
    assert "KeyError" not in describe(error)
