"""What must not change by accident. Where a change is meant, `python -m tests.golden` writes the files anew."""

import pytest

from tests.golden import kept
from tests.golden.goldens import GOLDENS


@pytest.mark.parametrize("name", GOLDENS)
def test_what_is_made_is_what_is_kept(name, tmp_path):
    difference = kept.difference(name, GOLDENS[name](tmp_path))
    if difference:
        pytest.fail(f"{difference}\nIf this is meant: python -m tests.golden {name}", pytrace=False)


def test_every_kept_file_is_one_of_these():
    assert {place.name for place in kept.KEPT.iterdir()} == set(GOLDENS)


def test_a_difference_shows_the_lines_and_is_gone_once_written(tmp_path):
    kept.write("some", {"a.txt": "# a title\none\ntwo\n", "b.jsonl.gz": "{}\n", "gone.txt": ""}, tmp_path)
    made = {"a.txt": "# a title\none\n2\n", "b.jsonl.gz": "{}\n", "new.txt": ""}
    assert kept.difference("some", made, tmp_path).splitlines() == [
        "--- kept/some/a.txt",
        "+++ made/some/a.txt",
        "@@ -2,3 +2,3 @@ a title",
        " one",
        "-two",
        "+2",
        " ",
        "some/gone.txt: no longer made",
        "some/new.txt: made, and not kept",
    ]
    kept.write("some", made, tmp_path)
    assert kept.read("some", tmp_path) == made
    assert not kept.difference("some", made, tmp_path)


def test_a_long_difference_is_cut(tmp_path):
    kept.write("some", {"a.txt": "0\n" * 100}, tmp_path)
    shown = kept.difference("some", {"a.txt": "1\n" * 100}, tmp_path).splitlines()
    assert (len(shown), shown[-1]) == (kept.LINES + 1, f"… and {204 - kept.LINES} lines")
