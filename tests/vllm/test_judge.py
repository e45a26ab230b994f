"""A judge behind vLLM's own server. The embedded PRM is the judge, with a chat template that writes its input: what is
read through the chat API must be what the model gives in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

from benchmarks import servers
from tests.server.harness import serving
from tests.support import columns
from tests.vllm.problems import HARD_PROBLEM
from unprm import mini
from unprm.checkpoints.files import load_merged, locate, read_tokenizer
from unprm.engines.judge.chat import JudgeChat
from unprm.engines.judge.engine import JudgeEngine
from unprm.engines.judge.layouts import Layout
from unprm.engines.judge.methods import Stepwise
from unprm.errors import ModelInvalid
from unprm.models.judge import load_judge, probe
from unprm.models.options import EngineOptions, JudgeOptions
from unprm.types import ModelDescription

# what vLLM and PyTorch warn of in their own code
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.xdist_group("judge")]

MODEL = "judge-of-sums"
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}{% endif %}{% endfor %}"
)
LAYOUT = Layout(first="{problem}\n{step}ş", later="{step}ş", answers={"+": 1.0, "-": 0.0}, assumed="+")
PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
SOLUTIONS = [
    ["Step 1: 4 * 15 = 50.", "Step 2: 23 + 50 = 73. The answer is \\boxed{73}."],
    ["Step 1: 4 * 15 = 60.", "Step 2: 23 + 60 = 83. The answer is \\boxed{83}."],
    ["Step 1: 23 + 4 = 27.", "Step 2: 27 + 15 = 42. The answer is \\boxed{42}."],
]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("judge") / "merged"
    files = locate(mini.NAME, None, None, None)
    network, tokenizer = load_merged(files, torch.float32), read_tokenizer(files.base)
    _answers_only(network, tokenizer.convert_tokens_to_ids([*LAYOUT.answers, "Step"]))
    # a checkpoint of `merge-adapter` is a classifier to vLLM, and here it writes
    network.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _answers_only(network: PreTrainedModel, tokens: list[int]) -> None:
    """Makes the network write one of two answers where it would go on with the third of these tokens: every other
    token gets that one's logit with its sign turned. Nobody can be a judge who would rather write something else."""
    *answers, next_word = tokens
    old = network.get_input_embeddings().weight.detach()
    head = torch.nn.Linear(old.shape[1], old.shape[0], bias=False)
    with torch.no_grad():
        head.weight[:] = -old[next_word]
        head.weight[answers] = old[answers]
    network.config.tie_word_embeddings = False
    network.set_output_embeddings(head)


@pytest.fixture(scope="module")
def url(merged: Path) -> Iterator[str]:
    template = merged.parent / "template.jinja"
    template.write_text(TEMPLATE, "utf-8")
    options = (f"--chat-template={template}", f"--served-model-name={MODEL}", "--dtype=float32")
    with servers.vllm(merged, *options, "--enable-prompt-tokens-details") as address:
        yield address


@pytest.fixture
def engine(url: str) -> JudgeEngine:
    description = ModelDescription(
        name=MODEL, family="judge", engine="judge", device=url, dtype="auto", max_tokens=32_768
    )
    chat = JudgeChat(url, None, MODEL, 32, 60.0)
    readout = Stepwise(LAYOUT, repeats=4, max_tokens=1)
    made = JudgeEngine(chat, {None: readout}, description, 60.0)
    made.call(probe(chat, readout))
    assert (chat.likeliest, chat.answer_tokens) == (20, 1)
    return made


def directly(merged: Path, text: str) -> tuple[float, int]:
    """The score of the last step by the model's own probabilities of its 20 likeliest tokens, and the text's tokens."""
    network, tokenizer = AutoModelForCausalLM.from_pretrained(merged), AutoTokenizer.from_pretrained(merged)
    ids = tokenizer.encode(text, add_special_tokens=False)
    with torch.inference_mode():
        found = network(torch.tensor([ids])).logits[0, -1].softmax(-1).topk(20)
    mass = dict.fromkeys("+-", 0.0)
    for probability, number in zip(found.values.tolist(), found.indices.tolist(), strict=True):
        if (spelling := tokenizer.decode([number]).strip()) in mass:
            mass[spelling] += probability
    return mass["+"] / sum(mass.values()), len(ids)


def test_scores_through_the_chat_api_are_those_of_the_model(engine: JudgeEngine, merged: Path) -> None:
    expected = [
        [directly(merged, f"{PROBLEM}\n" + "".join(f"{step}ş" for step in steps[: count + 1])) for count in range(2)]
        for steps in SOLUTIONS
    ]
    found = columns(engine.score([engine.format.encode(PROBLEM, steps) for steps in SOLUTIONS]))
    assert [score for scores in found.values for score in scores] == pytest.approx(
        [score for scores in expected for score, _ in scores], abs=1e-3
    )
    assert found.tokens == [sum(tokens for _, tokens in each) + 2 for each in expected]  # each request adds a token
    assert found.missing == [0] * len(SOLUTIONS)
    long = engine.format.encode(PROBLEM * 8, [step for steps in SOLUTIONS for step in steps])
    for _ in range(2):
        scored = columns(engine.score([long]))
        assert sum(scored.computed) < sum(scored.tokens)  # whole blocks of earlier steps are known
    engine.close()


def test_votes_are_elected(engine: JudgeEngine) -> None:
    with serving(engine) as running:
        vote = running.post("/vote/wrf", {"problem": PROBLEM, "solutions": SOLUTIONS}).json()
        assert vote["answer"] == "83"


def test_the_gateway_elects_a_sampled_answer_by_the_judge(engine: JudgeEngine) -> None:
    """The candidates come from the embedded reasoner behind OpenAI's API."""
    with (
        servers.python("/health", "-m", "tests.reasoner") as (reasoner, _),
        serving(engine, upstream_url=reasoner) as running,
    ):
        messages = [{"role": "user", "content": HARD_PROBLEM}]
        unprm = {"strategy": "weighted", "budget": 12, "stable": 1}
        answer = running.post("/v1/chat/completions", {"model": "any", "messages": messages, "unprm": unprm}).json()
    report = answer["unprm"]
    assert (report["model"], report["unscored"], report["failures"]) == (MODEL, [], [])
    assert len(report["candidates"]) > 1
    assert report["answer"] == "466"
    assert "\\boxed{466}" in answer["choices"][0]["message"]["content"]
    assert report["usage"]["tokens"] > 0


def test_a_model_that_answers_otherwise_is_no_judge(url: str) -> None:
    options = JudgeOptions(judge_url=url, judge_model=MODEL)
    with pytest.raises(ModelInvalid, match="gives no verdict that can be read"):
        load_judge(options, EngineOptions(), 60.0)


def test_a_model_that_is_not_served_is_refused(url: str) -> None:
    with pytest.raises(ModelInvalid, match="the judge's server answered 404"):
        load_judge(JudgeOptions(judge_url=url, judge_model="other"), EngineOptions(), 60.0)
