"""The threads of a container: no more than its quota of processors."""

from pathlib import Path

import pytest

from server.models.load import within_quota

SECOND = {"unlimited": "max 100000\n", "two": "200000 100000\n", "a half": "50000 100000\n", "more": "900000 100000\n"}
FIRST = {"unlimited": "-1\n", "two": "200000\n", "a half": "50000\n", "more": "900000\n"}
EXPECTED = {"unlimited": 4, "two": 2, "a half": 1, "more": 4}


@pytest.mark.parametrize("quota", EXPECTED)
def test_a_quota_limits_the_threads(quota: str, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(SECOND[quota], "ascii")
    assert within_quota(4, tmp_path) == EXPECTED[quota]


@pytest.mark.parametrize("quota", EXPECTED)
def test_so_does_one_of_the_first_version(quota: str, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(FIRST[quota], "ascii")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n", "ascii")
    assert within_quota(4, tmp_path) == EXPECTED[quota]


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert within_quota(4, tmp_path) == 4
