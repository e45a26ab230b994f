"""A text with the model's own step tag is split there at every endpoint, one with another family's tag is text."""

from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.fakes import upstream
from tests.server.gateway.harness import elected
from tests.server.harness import Running, ask, serving
from unprm.models.load import load_engine

QUESTION = "What is 6 times 7?"
STEPS = ["Step 1: 6 * 7 = 42.", "Step 2: It is even.", "Step 3: The answer is: 42"]
TAGGED = {
    "qwen-prm": "<extra_0>".join([*STEPS, ""]),
    "math-shepherd": "\n".join(f"{step} ки" for step in STEPS),
    "versaprm": " \n\n\n\n".join([*STEPS, ""]),
    "skywork": "\n\n".join(STEPS),  # without a tag
}
THOUGHT = "<think>6 * 7 = 24?\n\nNo.</think>"


@pytest.fixture(scope="module", params=TAGGED)
def family(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of a tiny model of each family, its gateway before an upstream that writes the steps with their tags,
    and that text."""
    place = checkpoints.write(request.param, tmp_path_factory.mktemp("families") / request.param)
    options = {} if request.param in ("qwen-prm", "skywork") else {"family": request.param}
    engine = load_engine(str(place), device="cpu", **options)
    text = TAGGED[request.param]
    with upstream(text, "The answer is 43.") as reasoner, serving(engine, upstream_url=reasoner.url) as running:
        yield running, text


def scores(running: Running, solution: Any, **more: Any) -> list[float]:
    body = {"problem": QUESTION, "solutions": [solution], **more}
    (scored,) = running.post("/score_steps", body).json()["solutions"]
    assert scored["answer"] == "42"
    return list(scored["step_scores"])


def test_every_endpoint_reads_a_tagged_text_as_its_steps(family: tuple[Running, str]) -> None:
    running, text = family
    expected = scores(running, STEPS)
    assert scores(running, text) == scores(running, text, split="line") == pytest.approx(expected, abs=1e-6)
    assert scores(running, THOUGHT + text) == pytest.approx(expected, abs=1e-6)
    assert len(scores(running, THOUGHT + "\n\n" + text, thoughts="score")) >= 3
    for vote in ("/vote/prm", "/vote/compare"):
        sent = {"problem": QUESTION, "solutions": [text, "So \\boxed{43}."]}
        assert running.post(vote, sent).json()["solutions"][0]["step_scores"] == pytest.approx(expected, abs=1e-6)
    one, other = (
        running.post("/preview", {"problem": QUESTION, "solution": solution}).json() for solution in (text, STEPS)
    )
    assert (one["token_ids"], one["steps"]) == (other["token_ids"], STEPS)
    (pair,) = running.post("/score", {"text_1": QUESTION, "text_2": text}).json()["data"]
    (ranked,) = running.post("/rerank", {"query": QUESTION, "documents": [text]}).json()["results"]
    assert [pair["score"], ranked["relevance_score"]] == pytest.approx([min(expected)] * 2, abs=1e-6)
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": text}]
    pooled = running.post("/pooling", {"messages": messages})
    assert [row[1] for row in pooled.json()["data"][0]["data"]] == pytest.approx(expected, abs=1e-6)
    _, report = elected(running, QUESTION, budget=2, round=2, strategy="prm", aggregate="min")
    (read,) = (each for each in report["candidates"] if each["answer"] == "42")
    assert read["max_reward"] == pytest.approx(min(expected), abs=1e-6)


def test_a_step_stands_where_it_is_in_the_text(family: tuple[Running, str]) -> None:
    running, text = family
    sent = ask(text, step_spans=True)
    (solution,) = running.post("/score_steps", sent).json()["solutions"]
    assert [text[start:end] for start, end in solution["step_spans"]] == solution["steps"] == STEPS


def test_another_family_s_tag_is_text(family: tuple[Running, str]) -> None:
    running, text = family
    for other in set(TAGGED.values()) - {text, TAGGED["skywork"], TAGGED["versaprm"]}:
        sent = {"problem": QUESTION, "solutions": [other], "split": "paragraph"}
        (solution,) = running.post("/score_steps", sent).json()["solutions"]
        assert solution["steps"] == [other]


def test_what_is_part_of_a_word_is_no_tag(server: Running, tmp_path: Path) -> None:
    """Of the family unprm, whose tag is ş, and of Math-Shepherd's."""

    def steps(running: Running, text: str) -> list[str]:
        return list(running.post("/score_steps", ask(text)).json()["solutions"][0]["steps"])

    for text in ("Beş elma var, 5 şeker.", "İş bitti, şimdi 5."):
        assert steps(server, text) == [text]
    assert steps(server, "6 * 7 = 42.şIt is even.ş\nBeş.ş") == ["6 * 7 = 42.", "It is even.", "\nBeş."]
    shepherd = load_engine(
        str(checkpoints.write("math-shepherd", tmp_path / "m")), device="cpu", family="math-shepherd"
    )
    with serving(shepherd) as running:
        assert steps(running, "Осталось 3 кипы.") == ["Осталось 3 кипы."]
        assert steps(running, "Осталось 3 кипы. ки\nИтого 5. ки") == ["Осталось 3 кипы.", "Итого 5."]
