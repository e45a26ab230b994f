"""Every example, run as its docstring says, before real servers."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.programs import ROOT, listening, printed
from tests.fake_engine import FakeEngine, hashed
from tests.fakes import COMPLETION_TOKENS, Upstream, upstream
from tests.pages import PLUGS_PROGRAMS
from tests.server.harness import Running, serving
from tests.support import PATIENCE
from tests.tiny import write_base

KEY = "k"
EXAMPLES = ROOT / "clients" / "examples"
SAMPLED = ["Step one.\n\nThe answer is \\boxed{7}.", "The answer is \\boxed{8}.", "So the answer is \\boxed{7}."]


def python(name: str, *options: str, server: Running) -> str:
    return printed(sys.executable, str(EXAMPLES / name), *options, **variables(server))


def variables(server: Running) -> dict[str, str]:
    return {"UNPRM_CLIENT_URL": server.url, "UNPRM_CLIENT_KEY": KEY}


@pytest.fixture
def sampled() -> Iterator[Upstream]:
    with upstream(*SAMPLED) as reasoner:
        yield reasoner


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_tokens=512)


@pytest.fixture
def gateway(sampled: Upstream, fake: FakeEngine) -> Iterator[Running]:
    """A protected server with an upstream."""
    with serving(fake, upstream_url=sampled.url, api_key=KEY) as running:
        running.http.headers["Authorization"] = f"Bearer {KEY}"
        yield running


def test_every_example_has_a_test_and_tells_how_to_run_it() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert names == {
        "curl.sh",
        "grpo.py",
        "reward_functions.py",
        "reward_server.py",
        "skyrl_env.py",
        "verifiers_steps.py",
        "verl_steps.py",
    }
    for name in names:
        assert f"clients/examples/{name}" in "".join((EXAMPLES / name).read_text("utf-8").splitlines(True)[:8])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(gateway: Running, sampled: Upstream) -> None:
    output = printed("bash", str(EXAMPLES / "curl.sh"), "some-model", **variables(gateway))
    scored, vote, chat = map(json.loads, output.splitlines())
    assert len(scored["solutions"][0]["step_scores"]) == 2
    assert (vote["answer"], vote["candidates"][0]["count"]) == ("83", 2)
    assert chat["unprm"]["budget"] == 4
    assert chat["choices"][0]["message"]["content"] in SAMPLED
    assert sampled.bodies[0]["messages"][0]["content"] == "Put the answer in \\boxed{}."
    assert sampled.bodies[0]["model"] == "some-model"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_fails_where_the_server_refuses(gateway: Running) -> None:
    with pytest.raises(AssertionError, match="unauthorized"):
        printed("bash", str(EXAMPLES / "curl.sh"), UNPRM_CLIENT_URL=gateway.url)


@pytest.mark.parametrize("process", [False, True])
def test_grpo(gateway: Running, fake: FakeEngine, tmp_path: Path, process: bool) -> None:
    """Two steps with a model of random weights: the rewards are the server's; of tokens, they are asked for again."""
    (tmp_path / "problems.jsonl").write_text('{"problem": "What is 12 + 34?"}\n' * 4, "utf-8")
    base, output = str(write_base(tmp_path / "base")), str(tmp_path / "out")
    problems = str(tmp_path / "problems.jsonl")
    options = ["--model", base, "--output", output, "--solutions", "2", "--tokens", "12", "--steps", "2"]
    python("grpo.py", problems, *options, *["--process"] * process, server=gateway)
    states = sorted((tmp_path / "out").glob("checkpoint-*/trainer_state.json"))
    log = json.loads(states[-1].read_text("utf-8"))["log_history"]
    means = [row["rewards/prm/mean"] for row in log if "rewards/prm/mean" in row]
    rewards = [min(hashed(solution)) for batch in fake.batches for solution in batch]
    assert (len(means), len(rewards)) == (2, 8 if process else 4)
    assert sum(means) / 2 == pytest.approx(sum(rewards) / len(rewards), abs=1e-6)
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_openrlhf(gateway: Running) -> None:
    """Called as OpenRLHF's `SingleTurnAgentExecutor` calls it."""
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    prompts = [turns.format("What is 3 + 4?"), "How many?"]
    queries = [prompts[0] + "One step.\n\nThe answer is \\boxed{7}.<|im_end|>\n", "<s>How many?"]
    body = {"query": queries, "prompts": prompts, "labels": ["7", "3"]}
    reward = rewarded(gateway)
    with listening(str(EXAMPLES / "reward_server.py"), **variables(gateway)) as url:
        answer = post(url, "get_reward", body)
        assert answer.json() == {
            "rewards": [reward, 0.0],
            "scores": [reward, 0.0],
            "extra_logs": {"scored_steps": [2.0, 0.0]},
        }
        too_long = {"query": ["How many?" + "a" * 600], "prompts": ["How many?"], "labels": ["3"]}
        assert post(url, "get_reward", too_long).json()["rewards"] == [0.0]
        assert post(url, "get_reward", {**body, "prompts": ["Other", "How many?"]}).status_code == 422
    other = variables(gateway) | {"UNPRM_CLIENT_KEY": "other"}
    with listening(str(EXAMPLES / "reward_server.py"), **other) as url:
        refused = post(url, "get_reward", body)
    assert refused.status_code == 503
    assert "unauthorized" in refused.text


def test_slime(gateway: Running) -> None:
    """Called as slime's `remote_rm` calls it: a number for each sample."""
    turns = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 + 4?"}]
    response = "One step.\n\nThe answer is \\boxed{7}.<|im_end|>"
    with listening(str(EXAMPLES / "reward_server.py"), **variables(gateway)) as url:
        for prompt in (turns, messages):
            answer = post(url, "slime", {"prompt": prompt, "response": response, "label": "7"})
            assert answer.json() == rewarded(gateway)
        assert post(url, "slime", {"prompt": turns, "response": " <|im_end|>", "label": "7"}).json() == 0.0
        refused = post(url, "slime", {"prompt": messages[:1], "response": response, "label": "7"})
        assert refused.status_code == 422
        assert "the prompt has no message of a user" in refused.text


def test_reward_functions(gateway: Running) -> None:
    """Called as verl's reward loop, verl's batch manager, and ms-swift call them; in a program, for its environment."""
    program = """
import asyncio, json, sys
sys.path.insert(0, "clients/examples")
from reward_functions import StepReward, compute_score, compute_scores

texts = ["One step.\\n\\nThe answer is \\\\boxed{7}.", " ", "a" * 600]
infos = [{"question": "What is 3 + 4?", "index": place} for place in range(3)]

async def loop():
    calls = [
        compute_score(data_source="d", solution_str=text, ground_truth="7", extra_info=info)
        for text, info in zip(texts, infos)
    ]
    return await asyncio.gather(*calls)

alone = asyncio.run(loop())
batch = compute_scores(data_sources=["d"] * 3, solution_strs=texts, ground_truths=["7"] * 3, extra_infos=infos)
swift = StepReward(args=None)(texts, question=["What is 3 + 4?"] * 3, solution=["7"] * 3)
try:
    compute_scores(["d"], texts[:1], ["7"], [{"index": 0}])
except KeyError as error:
    print(json.dumps([alone, batch, swift, str(error)]))
"""
    alone, batch, swift, error = json.loads(printed(sys.executable, "-c", program, **variables(gateway)))
    reward = rewarded(gateway)
    assert [each["score"] for each in alone] == batch == swift == [reward, 0.0, 0.0]
    assert [each["scored_steps"] for each in alone] == [2.0, 0.0, 0.0]
    assert "extra_info has the fields index: expected 'question'" in error


def test_optillm(gateway: Running) -> None:
    """Called as OptiLLM calls its plugins; tests/plugs runs it in OptiLLM."""
    program = (
        PLUGS_PROGRAMS["OptiLLM"]
        + """
import json, sys
from openai import OpenAI

llm = OpenAI(base_url=sys.argv[1], api_key="none")
config = {"temperature": 0.4, "max_tokens": 9, "n": 1, "stream": False, "unprm_strategy": "majority"}
elected = run("Be brief.", "User: What is 3 + 4?", llm, "m", config | {"unprm_candidates": 3})
print(json.dumps([SLUG, elected, run("", "User: Who?", llm, "m")]))
"""
    )
    with upstream(SAMPLED[1], SAMPLED[0], SAMPLED[2]) as reasoner:
        reasoner.takes_n = False
        output = printed(sys.executable, "-c", program, reasoner.url, **variables(gateway))
    slug, (text, tokens), (_, more) = json.loads(output)
    assert (slug, text, tokens, more) == ("unprm", SAMPLED[0], 3 * COMPLETION_TOKENS, 8 * COMPLETION_TOKENS)
    roles = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 + 4?"}]
    options = {"n": 3, "temperature": 0.4, "max_tokens": 9}
    assert reasoner.bodies[0] == {"model": "m", "messages": roles, **options}
    assert [body["n"] for body in reasoner.bodies] == [3, 2, 1, *range(8, 0, -1)]
    assert reasoner.bodies[3] == {"model": "m", "messages": [{"role": "user", "content": "Who?"}], "n": 8}


def test_optillm_s_candidates_without_an_answer_are_elected_by_their_rewards(gateway: Running) -> None:
    program = (
        PLUGS_PROGRAMS["OptiLLM"]
        + """
import sys
from openai import OpenAI

print(run("", "User: Who?", OpenAI(base_url=sys.argv[1], api_key="none"), "m", {"unprm_candidates": 2})[0])
"""
    )
    with upstream("I do not know.", "Nobody knows.") as reasoner:
        output = printed(sys.executable, "-c", program, reasoner.url, **variables(gateway))
    assert output == "Nobody knows.\n"


def rewarded(server: Running) -> float:
    """The server's reward of the tests' solution."""
    solution = ["One step.", "The answer is \\boxed{7}."]
    answer = server.post("/score_steps", {"problem": "What is 3 + 4?", "solutions": [solution]})
    return float(answer.json()["solutions"][0]["reward"])


def post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/{path}", json=body, timeout=PATIENCE)
