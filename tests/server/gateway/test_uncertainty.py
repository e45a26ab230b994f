"""The gateway before `uncertainty`: candidates are scored by the log-probabilities of their own tokens."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fakes import Upstream, upstream
from tests.server.gateway.harness import PROBLEM, ask, boxed
from tests.server.harness import Running, serving
from tests.support import TEST_DATA
from unprm import steps
from unprm.engines.uncertainty import READOUT, UncertaintyEngine
from unprm.openai.models import ChatChoice

SERVERS = json.loads((TEST_DATA / "servers.json").read_text("utf-8"))
SURE, UNSURE = -0.01, -4.0
SO = "So it is this number, as we found."


@contextmanager
def gateway(reasoner: Upstream, **options: Any) -> Iterator[Running]:
    with serving(UncertaintyEngine(64), upstream_url=reasoner.url, **options) as running:
        yield running


def logprobs(text: str, *by_step: float) -> dict[str, Any]:
    """As a server has them: a token is a word with the space before it, and the end is one, too."""
    tokens = re.findall(r"\s*\S+", text)
    step, content = 0, []
    for token in tokens:
        step += token.startswith("\n\n")
        content.append({"token": token, "logprob": by_step[step], "bytes": list(token.encode()), "top_logprobs": []})
    return {"content": [*content, {"token": "<|im_end|>", "logprob": -9.0, "bytes": None, "top_logprobs": []}]}


def texts(**by_answer: tuple[float, ...]) -> tuple[list[str], dict[int, Any]]:
    """Texts of two steps that state these answers, and the log-probabilities of each."""
    made = [boxed(answer[1:], SO) for answer in by_answer]
    pairs = zip(made, by_answer.values(), strict=True)
    return made, {number: logprobs(text, *sure) for number, (text, sure) in enumerate(pairs)}


def scores(text: str, *by_step: float) -> list[float]:
    """The step scores of a text by hand."""
    return [READOUT.score([sure] * len(step.split())) for step, sure in zip(text.split("\n\n"), by_step, strict=True)]


def elected(running: Running, **more: Any) -> tuple[Any, dict[str, Any]]:
    terms = {"strategy": "prm", "budget": 3, "round": 3, "stable": 1}
    answer = ask(running, extra_body={"unprm": terms | more.pop("unprm", {})}, **more)
    return answer, dict(answer.unprm)


def test_candidates_are_scored_by_their_own_tokens_and_these_are_not_shown() -> None:
    made, sent = texts(a1=(SURE, UNSURE), a2=(SURE, SURE), a3=(UNSURE, SURE))
    with upstream(*made, logprobs=sent) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running)
        assert reasoner.bodies[0]["logprobs"] is True
        assert "top_logprobs" not in reasoner.bodies[0]
        shown, _ = elected(running, logprobs=True)
    assert (report["answer"], report["decided_by"], report["model"]) == ("2", "reward", "uncertainty")
    assert report["reward"] == pytest.approx(min(scores(made[1], SURE, SURE)))
    assert (report["unscored"], report["demonstration"], report["usage"]["tokens"]) == ([], None, 0)
    assert answer.choices[0].logprobs is None
    assert shown.choices[0].message.content == made[1]
    assert len(shown.choices[0].logprobs.content) == len(sent[1]["content"])


@pytest.mark.parametrize("strategy", [None, "wrf"])
@pytest.mark.parametrize("dialect", ["chat/completions", "messages", "responses"])
def test_every_address_votes_by_them(dialect: str, strategy: str | None) -> None:
    made, sent = texts(a1=(SURE, UNSURE), a2=(SURE, SURE))
    messages = {"messages": [{"role": "user", "content": PROBLEM}], "max_tokens": 99}
    asked = {"input": PROBLEM} if dialect == "responses" else messages
    terms = {"budget": 2, "stable": 1} | ({} if strategy is None else {"strategy": strategy})
    with upstream(*made, logprobs=sent) as reasoner, gateway(reasoner) as running:
        answer = running.post(f"/v1/{dialect}", {"model": "m", "unprm": terms, **asked}).json()
    assert (answer["unprm"]["answer"], answer["unprm"]["strategy"]) == ("2", "wrf")
    assert '"logprob":' not in json.dumps(answer)


@pytest.mark.parametrize("strategy", [None, "wrf"])
@pytest.mark.parametrize("text", [[{"type": "text", "text": PROBLEM}], []])
def test_a_conversation_may_have_images_as_no_model_reads_it(text: list[Any], strategy: str | None) -> None:
    made, sent = texts(a1=(SURE, UNSURE), a2=(SURE, SURE))
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}, *text]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    terms = {"strategy": strategy, "budget": 2, "stable": 1}
    with upstream(*made, logprobs=sent) as reasoner, gateway(reasoner) as running:
        report = running.post("/v1/chat/completions", body | {"unprm": terms}).json()["unprm"]
    assert (report["answer"], report["strategy"], report["model"]) == ("2", "wrf", "uncertainty")


def test_a_vote_without_rewards_asks_for_none() -> None:
    with upstream(boxed(1), boxed(2)) as reasoner, gateway(reasoner) as running:
        elected(running, unprm={"strategy": "majority"})
        assert "logprobs" not in reasoner.bodies[0]


@pytest.mark.parametrize("strategy", [None, "prm"])
def test_an_upstream_that_gives_none_is_named(strategy: str | None) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"strategy": strategy}}
    with upstream(boxed(1), boxed(2), gives_logprobs=False) as reasoner, gateway(reasoner) as running:
        refused = running.post("/v1/chat/completions", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "upstream_failed")
    message = refused.json()["error"]["message"]
    assert message.startswith("the upstream sends no log-probabilities")
    assert message.endswith("name another vote, as majority")


@pytest.mark.parametrize("lacking", [None, {"content": [{"token": "another text", "logprob": -1.0}]}])
def test_a_candidate_without_fitting_ones_leaves_the_vote_to_the_others(lacking: Any) -> None:
    made, sent = texts(a1=(SURE, SURE), a2=(-1.0, SURE), a3=(UNSURE, UNSURE))
    with upstream(*made, logprobs=sent | {0: lacking}) as reasoner, gateway(reasoner) as running:
        _, report = elected(running)
    assert (report["answer"], report["decided_by"]) == ("2", "reward")
    (unscored,) = report["unscored"]
    assert unscored["code"] == "no_logprobs"
    assert {each["answer"]: each["mean_reward"] for each in report["candidates"]}["1"] is None


def test_cut_candidates_and_tool_calls_are_scored_too() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I add.", "tool_calls": [call]}
    cut = boxed(5, SO)
    sent: Mapping[int, Any] = {0: logprobs("I add. {add}", UNSURE), 1: logprobs(cut, SURE, SURE)}
    tools = [{"type": "function", "function": {"name": "add"}}]
    with upstream(message, cut, logprobs=sent, cut=[1]) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, tools=tools, unprm={"budget": 2})
        rewards = {each["answer"]: each["mean_reward"] for each in report["candidates"]}
    assert rewards["add({})"] == pytest.approx(READOUT.score([UNSURE] * 3 + [-9.0]))
    assert rewards["5"] == pytest.approx(min(scores(cut, SURE, SURE)))


@pytest.mark.parametrize("server", ["llama.cpp", "vLLM"])
def test_tokens_of_servers_are_those_of_the_text(server: str) -> None:
    (choice, _) = map(ChatChoice.model_validate, SERVERS[server]["chat"]["body"]["choices"])
    tokens = [(token.raw, token.bounded) for token in choice.tokens]
    assert steps.logprobs_of(steps.split(choice.text), tokens) == [(-0.25, -0.5)]
