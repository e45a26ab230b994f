"""The report: what its figures and tables say about made-up results whose outcome is known."""

import base64
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import pytest

from research.report.page import write
from training.evaluate.metrics import Share
from training.evaluate.processbench import PUBLISHED, SUBSETS, Figures
from training.evaluate.records import JudgedCandidates
from unprm.errors import RecordInvalid
from unprm.votes.registry import VOTES

LOW = {vote: Share(0.6, 0.58, 0.62) for vote in VOTES}


class _Page(HTMLParser):
    """Alternative texts by figure, captions, notes, and the tables' rows by caption."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text("utf-8")
        self.images, self.captions, self.notes, self.tables, self.tags = [], [], [], {}, []
        self._open = []
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        self._open.append(found.get("class") if tag == "p" else tag)
        if tag == "img":
            self.images.append(found)
        elif tag == "div" and found.get("role") == "region":
            self._rows = self.tables.setdefault(found["aria-label"], [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_data(self, data):
        kind = self._open[-1] if self._open else None
        if kind in ("td", "th"):
            self._rows[-1][-1] += data
        elif kind == "figcaption":
            self.captions.append(data)
        elif kind == "note":
            self.notes.append(data)

    def handle_endtag(self, tag):
        self._open.append(None)

    def alt(self, start):
        (found,) = [image["alt"] for image in self.images if image["alt"].startswith(start)]
        return found


def _write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


def _lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def _best_of_n(directory, run, shares, questions=200, judged=()):
    """Accuracies at N = 4 as given; all alike at N = 1."""
    accuracy = {vote: {1: asdict(Share(0.5, 0.45, 0.55)), 4: asdict(share)} for vote, share in (LOW | shares).items()}
    results = {"model": "m", "alpha": 0.5, "seed": 0, "questions": questions, "candidates": 4, "accuracy": accuracy}
    place = directory / "best-of-n" / run
    _write_json(
        place / "results.json", results | {"any_right": accuracy["majority"] | {4: asdict(Share(0.95, 0.9, 1.0))}}
    )
    if judged:
        _lines(
            place / "candidates.jsonl", [{**asdict(candidates), "id": str(k)} for k, candidates in enumerate(judged)]
        )


def _processbench(directory, run, f1, subsets=SUBSETS, wrong=60):
    figures = {name: asdict(Figures(0.3, 0.8, f1, f1 - 0.05, f1 + 0.05, wrong, 40, 0)) for name in subsets}
    result = {"subsets": figures, "average_f1": f1}
    results = {"model": "m", "fixed": {"threshold": 0.5, **result}, "best on gsm8k": {"threshold": 0.31, **result}}
    _write_json(directory / "processbench" / run / "results.json", results)


def _findings(directory, **changed):
    finding = {"question": "Is it so?", "answer": "It is.", "columns": ["PRM", "share"], "rows": [["UnPRM", 0.867]]}
    _write_json(directory / "findings.json", [finding | changed])


def _everything(directory):
    _findings(directory)
    _best_of_n(directory, "UnPRM/0", {}, judged=[JudgedCandidates("q", (0, 1), (True, False), (0.9, 0.2))])
    _processbench(directory, "UnPRM/0", 0.4)


@pytest.mark.parametrize(
    ("majority", "addition"),
    [(Share(0.8, 0.77, 0.83), ". "), (Share(0.85, 0.82, 0.88), "; its interval overlaps that")],
)
def test_a_title_names_the_winner_and_says_if_another_is_within_reach(tmp_path, majority, addition):
    _best_of_n(tmp_path, "UnPRM", {"wrf": Share(0.867, 0.84, 0.89), "majority": majority})
    page = _Page(write(tmp_path))
    assert page.alt("At N = 4 wrf elects a right answer most often: 86.7 %" + addition)
    assert page.alt("At N = 4 UnPRM with wrf elects a right answer most often: 86.7 %" + addition)


def test_equal_winners_share_the_title(tmp_path):
    _best_of_n(tmp_path, "UnPRM", {"wrf": Share(0.8, 0.78, 0.82), "hmr": Share(0.8, 0.78, 0.82)})
    assert _Page(write(tmp_path)).alt("At N = 4 hmr and wrf elect a right answer most often: 80.0 %.")


def test_votes_are_compared_over_all_prms_and_prms_by_their_best_vote(tmp_path):
    _best_of_n(tmp_path, "A", {"wrf": Share(0.8, 0.79, 0.81), "prm": Share(0.85, 0.84, 0.86)})
    _best_of_n(tmp_path, "B", {"wrf": Share(0.82, 0.81, 0.83), "prm": Share(0.7, 0.69, 0.71)})
    page = _Page(write(tmp_path))
    assert page.alt("At N = 4, on average over 2 PRMs, wrf elects a right answer most often: 81.0 %.")
    assert page.alt("At N = 4 A with prm elects a right answer most often: 85.0 %.")


def test_seeds_of_a_prm_are_averaged_with_their_intervals(tmp_path):
    _best_of_n(tmp_path, "UnPRM/seed-0", {"wrf": Share(0.8, 0.76, 0.84)})
    _best_of_n(tmp_path, "UnPRM/deeper/seed-1", {"wrf": Share(0.9, 0.88, 0.92)})
    _processbench(tmp_path, "UnPRM/0", 0.4)
    _processbench(tmp_path, "UnPRM/1", 0.5)
    page = _Page(write(tmp_path))
    header, row = page.tables["right answers in % (95 % interval)"]
    cells = dict(zip(header, row, strict=True))
    assert (cells["PRM"], cells["seeds"], cells["questions"], cells["N"]) == ("UnPRM", "2", "200", "4")
    assert (cells["wrf"], cells["any right"]) == ("85.0 (82.0–88.0)", "95.0")
    assert page.tables["F1 in % (95 % interval)"][1][:3] == ["UnPRM", "0.5 (fixed)", "45.0 (40.0–50.0)"]
    assert all("seeds (2 each)" in page.captions[k] for k in range(3))


def test_seeds_that_were_measured_on_different_data_are_refused(tmp_path):
    _best_of_n(tmp_path, "UnPRM/0", {})
    _best_of_n(tmp_path, "UnPRM/1", {}, questions=100)
    with pytest.raises(RecordInvalid, match="other questions than"):
        write(tmp_path)
    _best_of_n(tmp_path, "UnPRM/1", {})
    _processbench(tmp_path, "UnPRM/0", 0.4)
    _processbench(tmp_path, "UnPRM/1", 0.4, wrong=50)
    with pytest.raises(RecordInvalid, match="other subsets than"):
        write(tmp_path)


def test_gold_frequencies_and_lanes_are_those_of_unprm_where_there_is_one(tmp_path):
    always = JudgedCandidates("q", (0, 0, 0, 0), (True,) * 4, (0.5,) * 4)
    never = JudgedCandidates("q", (1, 1, 2, None), (False,) * 4, (0.5,) * 4)
    # the rarer answer is right: only its reward tells
    rare = JudgedCandidates("q", (1, 1, 1, 0), (False, False, False, True), (0.1, 0.1, 0.1, 0.2))
    _best_of_n(tmp_path, "Another", {}, judged=[always])
    _best_of_n(tmp_path, "Qwen-UnPRM40K", {}, judged=[always, never, rare, rare])
    page = _Page(write(tmp_path))
    assert page.alt("25.0 % of the questions have only right candidates, 25.0 % have none.")
    # hmr follows the majority of three quarters; in wrf the two are tied, and frequency decides
    assert page.alt("Where fewer than half of a question's candidates are right, prm elects a right answer most often: "
                    "100.0 %.")  # fmt: skip
    (caption,) = [caption for caption in page.captions if "Qwen-UnPRM40K" in caption]
    assert "n = 4 questions with 4 candidates each, of which 2 with right candidates" in caption


def test_processbench_names_the_best_and_quotes_what_was_published(tmp_path):
    _processbench(tmp_path, "A", 0.5)
    _processbench(tmp_path, "B", 0.3, SUBSETS[:2])
    page = _Page(write(tmp_path))
    assert page.alt("A finds first wrong steps with the highest average F1, 50.0 %.")
    rows = page.tables["F1 in % (95 % interval)"]
    assert rows[3][:5] == ["B", "0.5 (fixed)", "30.0 (25.0–35.0)", "30.0 (25.0–35.0)", "–"]
    assert rows[2][1] == "0.31 (best on gsm8k)"
    assert len(rows) == 1 + 4 + len(PUBLISHED)
    assert ["Qwen2.5-Math-7B-UnPRM40K", "published", "53.5", "43.4", "33.6", "30.8", "40.3"] in rows
    details = page.tables["first wrong step named exactly, right solutions left alone"]
    assert details[1] == ["A", "fixed", "gsm8k", "30.0", "80.0", "50.0", "60", "40", "0"]


def test_a_narrow_lead_on_processbench_is_reported_as_such_and_other_subsets_have_no_published_rows(tmp_path):
    _processbench(tmp_path, "A", 0.45, ("easy", "hard"))
    _processbench(tmp_path, "B", 0.4, ("easy", "hard"))
    page = _Page(write(tmp_path))
    overlap = "its intervals overlap those of B on 2 of 2 subsets."
    assert page.alt(f"A finds first wrong steps with the highest average F1, 45.0 %; {overlap}")
    assert len(page.tables["F1 in % (95 % interval)"]) == 1 + 4


@pytest.mark.parametrize(
    ("make", "there"),
    [
        (_findings, "findings.json"),
        (lambda directory: _best_of_n(directory, "A", {}), "best-of-n/NAME/…/results.json"),
        (lambda directory: _processbench(directory, "A", 0.4), "processbench/NAME/…/results.json"),
    ],
)
def test_each_part_may_be_missing_and_the_page_says_so(tmp_path, make, there):
    make(tmp_path)
    notes = " ".join(_Page(write(tmp_path)).notes)
    parts = (
        "findings.json",
        "best-of-n/NAME/…/results.json",
        "processbench/NAME/…/results.json",
    )
    for part in parts:
        assert (f"Not there: {part}." in notes) == (part != there)
    assert ("candidates.jsonl beside" in notes) == there.startswith("best-of-n")


def test_a_directory_with_nothing_is_refused_with_what_was_expected(tmp_path):
    (tmp_path / "best-of-n" / "A").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RecordInvalid, match=r"findings\.json.*best-of-n.*processbench"):
        write(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda directory: _findings(directory, rows=[["UnPRM"]]), "as many cells"),
        (lambda directory: _findings(directory, rows=[["UnPRM", None]]), "rows"),
        (lambda directory: _findings(directory, colour="red"), "colour"),
        (lambda directory: _write_json(directory / "processbench" / "A" / "results.json", {"model": "m"}), "fixed"),
        (lambda directory: _best_of_n(directory, "A", {"wrf": Share(0.5, 0.4, "much")}), "wrf"),
    ],
)
def test_what_the_commands_did_not_write_is_refused(tmp_path, make, reason):
    make(tmp_path)
    with pytest.raises(RecordInvalid, match=reason):
        write(tmp_path)


def test_a_vote_that_is_not_there_is_refused(tmp_path):
    _best_of_n(tmp_path, "A", {})
    path = tmp_path / "best-of-n" / "A" / "results.json"
    results = json.loads(path.read_text("utf-8"))
    del results["accuracy"]["weighted"]
    _write_json(path, results)
    with pytest.raises(RecordInvalid, match="not all there"):
        write(tmp_path)


def test_hostile_text_stays_text(tmp_path):
    evil = '"><script>alert(1)<'
    _findings(tmp_path, question=evil, answer=evil, columns=[evil, "n"], rows=[[evil, 1]])
    name = '_$x^{$ "><img src=x onerror=alert(1)>'
    _best_of_n(tmp_path, name, {}, judged=[JudgedCandidates("q", (0, 1), (True, False), (0.9, 0.2))])
    _processbench(tmp_path, name, 0.4, (name,))
    page = _Page(write(tmp_path))
    assert not any(tag == "script" or "onerror" in found for tag, found in page.tags)
    assert page.tables[evil] == [[evil, "n"], [evil, "1"]]
    assert page.tables["right answers in % (95 % interval)"][1][0] == name
    assert name in page.alt(f"{name} finds first wrong steps")


def test_the_page_needs_no_other_file(tmp_path):
    _everything(tmp_path)
    page = _Page(write(tmp_path))
    anchors = {found["id"] for _, found in page.tags if "id" in found}
    links = [found["href"] for _, found in page.tags if "href" in found]
    assert links
    assert {link.removeprefix("#") for link in links} <= anchors
    assert all(found["src"].startswith("data:image/png;base64,") for _, found in page.tags if "src" in found)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe"}
    assert not re.search(r"url\(|@import|https?:", re.sub(r'src="[^"]*"', "", page.text))


def test_figures_are_pictures_with_a_text_and_the_same_as_files(tmp_path):
    _everything(tmp_path)
    page = _Page(write(tmp_path))
    files = {path.read_bytes(): path.name for path in (tmp_path / "figures").iterdir()}
    shown = [base64.b64decode(image["src"].partition(",")[2], validate=True) for image in page.images]
    assert sorted(files[picture] for picture in shown) == [
        "accuracy-by-prm.png",
        "accuracy-by-vote.png",
        "gold-frequency.png",
        "lanes.png",
        "processbench.png",
    ]
    for picture, image in zip(shown, page.images, strict=True):
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert picture.endswith(b"IEND\xaeB`\x82")
        assert int.from_bytes(picture[16:20], "big") == 1500
        assert len(image["alt"]) > 40
    assert len(page.captions) == 5
    assert all("n = " in caption for caption in page.captions)


def test_numbers_stand_to_the_right_and_words_to_the_left(tmp_path):
    row = ["7B-PRM", 0.5, "34 %", "-1.2 [-3.4, +1.0], p < 0.001", "2 reasons"]
    _findings(tmp_path, columns=["PRM", "share", "saved", "difference", "why"], rows=[row])
    classes = [found.get("class") for tag, found in _Page(write(tmp_path)).tags if tag == "td"]
    assert classes == [None, "number", "number", "number", None]


def test_the_same_results_give_the_same_page(tmp_path):
    _everything(tmp_path)
    first = write(tmp_path).read_bytes()
    assert write(tmp_path).read_bytes() == first
