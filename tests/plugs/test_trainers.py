"""The examples that reward, called by the trainers' packages themselves: their loaders, managers and requests."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.clients.programs import environment, listening
from tests.server.harness import Running, embedded, serving
from tests.support import PATIENCE, ROOT
from unprm.calibration import log_odds

PYTHON = ROOT / ".venv-plugs" / "bin" / "python"
EXAMPLES = ROOT / "clients" / "examples"
PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
SOLUTIONS = [f"Step 1: 4 * 15 = {each}.\nStep 2: 23 + {each} = {23 + each}." for each in (60, 50)]
PROMPT = f"<|im_start|>user\n{PROBLEM}<|im_end|>\n<|im_start|>assistant\n"
START = """
import asyncio, json, sys

path, problem, solutions = json.loads(sys.argv[1])


class Characters:
    def __call__(self, text, **_):
        return {"input_ids": torch.tensor([list(text.encode())])}

    def decode(self, ids, skip_special_tokens):
        return bytes(list(ids)).decode()
"""
VERL = """
import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager
from verl.workers.reward_manager import get_reward_manager_cls


def configured(name):
    function = {"path": path, "name": name}
    manager = {"source": "register", "name": "naive"}
    return OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": manager}})


def data():
    width = max(map(len, solutions))
    responses = torch.tensor([list(solution.encode().ljust(width)) for solution in solutions])
    used = torch.tensor([[1] + [position < len(solution) for position in range(width)] for solution in solutions])
    rows = [{"data_source": "d", "reward_model": {"ground_truth": "83"}, "extra_info": {"question": problem}}] * 2
    return DataProto.from_dict(
        tensors={"prompts": torch.ones(2, 1, dtype=int), "responses": responses, "attention_mask": used.int()},
        non_tensors={key: np.array([dict(row)[key] for row in rows], dtype=object) for key in rows[0]},
    )


async def loop():
    manager = load_reward_manager(configured("compute_score"), Characters())
    return [await manager.run_single(data()[[place]]) for place in range(2)]


alone = asyncio.run(loop())
assert all(each["reward_extra_info"]["scored_steps"] == 2 for each in alone)
print(json.dumps([each["reward_score"] for each in alone]))
batch = get_reward_manager_cls("batch")(Characters(), 0, get_custom_reward_fn(configured("compute_scores")))(data())
ends = [len(solution) - 1 for solution in solutions]
assert batch.count_nonzero() == 2
print(json.dumps(batch[[0, 1], ends].tolist()))
"""
VERL_STEPS = """
import hydra
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

tokenizer = AutoTokenizer.from_pretrained("unprm/mini/weights/base")
tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"


class Engine:
    async def generate(self, **_):
        return TokenOutput(token_ids=tokenizer.encode(solution, add_special_tokens=False))


async def loop(**more):
    rollout = {"prompt_length": 200, "response_length": 200}
    terms = {
        "trainer_config": DictConfigWrap(OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})),
        "server_manager": Engine(),
        "tokenizer": tokenizer,
        "processor": None,
        "dataset_cls": RLHFDataset,
        "data_config": DictConfigWrap(OmegaConf.create({})),
    }
    row = {"raw_prompt": [{"role": "user", "content": problem}], "extra_info": {"question": problem}}
    steps = hydra.utils.instantiate(OmegaConf.create({"name": "steps", "_target_": path, **more}), **terms)
    return (await steps.run({}, **row)).as_dict()


for solution in [*solutions, " "]:
    for differences in (False, True):
        made = asyncio.run(loop(differences=differences))
        assert made["rm_scores"].shape == made["response_mask"].shape
        ends = made["rm_scores"].nonzero().flatten().tolist()
        assert [tokenizer.decode(made["responses"][: end + 1]) for end in ends[1:]] == [solution] * len(ends[1:])
        print(json.dumps(made["rm_scores"][ends].tolist()))
"""
VERL_CLASSIFIES = """
import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker


class Chat(Characters):
    eos_token, bos_token = "<end>", None

    def decode(self, ids):
        return bytes(ids.tolist()).decode()

    def apply_chat_template(self, chat, **_):
        asked, said = (message["content"] for message in chat)
        return f"{asked}\\n" + "".join(step + "\u015f" for step in said.split("\\n"))


async def scored(solution):
    worker = object.__new__(RewardLoopWorker)
    worker.input_tokenizer = worker.reward_model_tokenizer = Chat()
    worker.reward_router_address = path
    model = {"model_path": "/models/unprm-mini", "rollout": {"name": "vllm"}}
    worker.config = OmegaConf.create({"reward": {"reward_model": model}})
    response = torch.tensor([list(solution.encode())])
    chat = np.empty(1, dtype=object)
    chat[0] = [{"role": "user", "content": problem}]
    data = DataProto.from_dict(
        tensors={"responses": response, "attention_mask": torch.ones_like(response)}, non_tensors={"raw_prompt": chat}
    )
    return (await worker.compute_score_disrm(data))["reward_score"]


print(json.dumps([asyncio.run(scored(solution)) for solution in solutions]))
"""
SWIFT = """
from swift.rewards import orms
from swift.utils import import_external_file

import_external_file(path)
print(json.dumps(orms["prm"](args=None)(solutions, question=[problem] * 2, solution=["83"] * 2)))
"""
OPENRLHF = """
from types import SimpleNamespace

import torch
from openrlhf.utils.agent import SingleTurnAgentExecutor


class Engine:
    async def generate(self, ids, *_, **__):
        output = SimpleNamespace(token_ids=list(solution.encode()), finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


sampling = SimpleNamespace(max_tokens=200, logprobs=None)
rewards = []
for solution in (each + "<|im_end|>" for each in solutions):
    executor = SingleTurnAgentExecutor(path)
    done = asyncio.run(executor.execute(problem, "83", sampling, 500, Characters(), Engine()))
    assert done["extra_logs"] == {"scored_steps": [2.0]}
    rewards += done["reward"]
print(json.dumps(rewards))
"""
SKYRL = """
import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # pydantic wants it before Python 3.12, for which SkyRL is written
import skyrl_gym
from skyrl.train.config.config import GeneratorConfig, SamplingParams, SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

END = 0
skyrl_gym.register(id="prm", entry_point=path + ":SolutionReward")
skyrl_gym.register(id="prm_steps", entry_point=path + ":StepReward")


class Chat(Characters):
    eos_token, eos_token_id = "<end>", END

    def apply_chat_template(self, messages, **_):
        return [END, *"".join(message["content"] for message in messages).encode()]


class Engine:
    def __init__(self, turns):
        self.turns = iter(turns)

    async def generate(self, _, model):
        text, ended = next(self.turns)
        ids = [*text.encode(), *[END] * ended]
        made = {"responses": text, "response_ids": ids, "stop_reasons": "stop", "response_logprobs": [0.0] * len(ids)}
        return {name: [value] for name, value in made.items()}

    async def finish_session(self, _):
        pass


def rewarded(env, turns, most=9):
    settings = GeneratorConfig(
        max_turns=most,
        max_input_length=500,
        sampling_params=SamplingParams(stop=["\\n\\n"]),
        use_conversation_multi_turn=False,
    )
    generator = SkyRLGymGenerator(settings, SkyRLGymConfig(), Engine(turns), Chat())
    batch = {"prompts": [[{"role": "user", "content": problem}]], "env_classes": [env], "env_extras": [{}]}
    made = asyncio.run(generator.generate(batch, disable_tqdm=True))
    (rewards,), (ids,), (mask,) = made["rewards"], made["response_ids"], made["loss_masks"]
    assert bytes(ids[:-1]).decode() == "".join(text for text, _ in turns) and all(mask)
    return {place: reward for place, reward in enumerate(rewards) if reward}


for solution in solutions:
    first, last = solution.split("\\n")
    turns = [("\\n\\n", False), (first + "\\n\\n", False), (last, True)]
    places = [len(first) + 3, len(first) + len(last) + 4]
    at_end, by_step = rewarded("prm", [(solution, True)]), rewarded("prm_steps", turns)
    assert list(at_end) == [len(solution)] and set(by_step) <= set(places)
    assert list(rewarded("prm_steps", turns[:2], most=2).values()) == [by_step[places[0]]]
    print(json.dumps([*at_end.values(), *(by_step.get(place, 0.0) for place in places)]))
"""

VERIFIERS = """
import verifiers.v1 as vf

call = vf.ToolCall(id="c1", name="calculate", arguments=json.dumps({"term": "4 * 15"}))
rewards = []
for solution in solutions:
    messages = [
        vf.UserMessage(content=problem),
        vf.AssistantMessage(content="", tool_calls=[call]),
        vf.ToolMessage(tool_call_id="c1", content="60"),
        vf.AssistantMessage(content=solution),
    ]
    nodes = [
        vf.MessageNode(parent=place - 1 if place else None, message=message, sampled=message.role == "assistant")
        for place, message in enumerate(messages)
    ]
    plugs = {"rewards": {"steps": {"fn": path + ":reward"}}, "metrics": {"scores": {"fn": path + ":step_scores"}}}
    task = vf.Task(vf.TaskData(prompt=problem), vf.TaskConfig(**plugs))
    about = {"type": "Task", "data": task.data}
    tools = [vf.Tool(name="calculate")]
    trace = vf.Trace(task=about, agent=vf.AgentInfo.model_construct(), nodes=nodes, tools=tools)
    asyncio.run(task.score(trace))
    print(json.dumps([trace.reward, trace.metrics.get("step_1"), trace.metrics.get("step_3")]))
"""

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make test-plugs` makes the environment")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(embedded()) as running:
        yield running


@pytest.fixture(scope="module")
def expected(server: Running) -> list[float]:
    scored = server.post("/score_steps", {"problem": PROBLEM, "solutions": SOLUTIONS}).json()["solutions"]
    right, wrong = (solution["reward"] for solution in scored)
    assert right > 0.5 > wrong
    return [right, wrong]


def printed(program: str, path: str, problem: str, server: Running) -> list[list[float]]:
    """The lines that a program of the trainers' environment prints, as JSON."""
    completed = subprocess.run(
        [PYTHON, "-c", START + program, json.dumps([path, problem, SOLUTIONS])],
        cwd=ROOT,
        env=environment(
            PYTHONPATH=os.pathsep.join(map(str, (ROOT / "clients", EXAMPLES))), UNPRM_CLIENT_URL=server.url
        ),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("[")]


def test_verl(server: Running, expected: list[float]) -> None:
    alone, batch = printed(VERL, str(EXAMPLES / "reward_functions.py"), PROBLEM, server)
    assert alone == expected
    assert batch == pytest.approx(expected, abs=1e-6)  # float32


def test_verl_s_agent_loop_rewards_tokens(server: Running) -> None:
    """Its responses are the solutions, as its trainer takes them; a blank one gets nothing."""
    scored = server.post("/score_steps", {"problem": PROBLEM, "solutions": SOLUTIONS}).json()["solutions"]
    *found, blank, blank_too = printed(VERL_STEPS, "verl_steps.StepRewards", PROBLEM, server)
    for solution, plain, differences in zip(scored, found[::2], found[1::2], strict=True):
        first, last = solution["step_scores"]
        assert plain == pytest.approx([first, last], abs=1e-6)  # float32
        assert differences == pytest.approx([first, last - first], abs=1e-6)
    assert blank == blank_too == []


def test_verl_s_reward_loop_classifies_prompts(server: Running, expected: list[float]) -> None:
    """Without a reward function: it renders the prompts and posts them to /classify."""
    ((right, wrong),) = printed(VERL_CLASSIFIES, server.url.removeprefix("http://"), PROBLEM, server)
    assert [right, wrong] == pytest.approx(list(map(log_odds, expected)))


def test_ms_swift(server: Running, expected: list[float]) -> None:
    assert printed(SWIFT, str(EXAMPLES / "reward_functions.py"), PROBLEM, server) == [expected]


def test_openrlhf(server: Running, expected: list[float]) -> None:
    """One of its executors, whose engine answers with the solutions, posts them to the reward server."""
    with listening(str(EXAMPLES / "reward_server.py"), UNPRM_CLIENT_URL=server.url) as url:
        assert printed(OPENRLHF, f"{url}/get_reward", PROMPT, server) == [expected]


def test_skyrl(server: Running, expected: list[float]) -> None:
    """Its generator, whose engine answers with the solutions at once, and step by step after a blank turn."""
    problem = {"problem": PROBLEM, "solutions": [solution.split("\n") for solution in SOLUTIONS]}
    scored = server.post("/score_steps", problem).json()["solutions"]
    for solution, reward, (at_end, *by_step) in zip(
        scored, expected, printed(SKYRL, "skyrl_env", PROBLEM, server), strict=True
    ):
        first, _ = solution["step_scores"]
        assert at_end == reward
        assert by_step == pytest.approx([first, min(0.0, reward - first)])


def test_verifiers(server: Running) -> None:
    """A task of theirs scores traces by the plugged reward and metric; an agent's steps are only checked here."""
    call = {"id": "c1", "function": {"name": "calculate", "arguments": '{"term": "4 * 15"}'}}
    for solution, (reward, *steps) in zip(
        SOLUTIONS, printed(VERIFIERS, str(EXAMPLES / "verifiers_steps.py"), PROBLEM, server), strict=True
    ):
        messages = [
            {"role": "user", "content": PROBLEM},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "60"},
            {"role": "assistant", "content": solution},
        ]
        trajectories = {"trajectories": [{"messages": messages}], "tools": [{"type": "function", "name": "calculate"}]}
        scored = server.post("/score_steps", trajectories).json()["solutions"][0]
        assert steps == scored["step_scores"]
        assert [reward] == [score for score in steps if score is not None]
