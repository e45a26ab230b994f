"""How each family's authors score a solution: their layout as text, tokenized whole, every logit, one item at a time.

Nothing here comes from `unprm`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)

Score = Callable[[str, Sequence[str]], tuple[list[int], list[float]]]
"""From problem and steps to the ids that are read and the score of each step."""


def _tokenizer(place: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(place)


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _causal(place: Path) -> Callable[[list[int]], torch.Tensor]:
    network = AutoModelForCausalLM.from_pretrained(place).eval()

    @torch.no_grad()
    def logits(ids: list[int]) -> torch.Tensor:
        return network(torch.tensor([ids])).logits[0].double()

    return logits


def math_shepherd(place: Path) -> Score:
    tokenizer, logits = _tokenizer(place), _causal(place)
    good, bad, tag = tokenizer.convert_tokens_to_ids(["▁+", "▁-", "▁ки"])

    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        solution = "\n".join(f"Step {number}: {step} ки" for number, step in enumerate(steps, 1))
        ids = tokenizer(f"{problem} {solution}\n")["input_ids"]
        shares = logits(ids)[:, [good, bad]].softmax(-1)[:, 0]
        return ids, shares[torch.tensor(ids) == tag].tolist()

    return score


def rlhflow(place: Path) -> Score:
    tokenizer, logits = _tokenizer(place), _causal(place)
    verdicts = tokenizer.convert_tokens_to_ids(["+", "-"])

    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        chat: list[dict[str, str]] = []
        scores, ids = [], []
        for number, step in enumerate(steps):
            chat.append({"role": "user", "content": step if number else f"{problem} {step}"})
            chat.append({"role": "assistant", "content": "+"})
            ids = _ids(tokenizer, tokenizer.apply_chat_template(chat, tokenize=False))
            scores.append(logits(ids)[-3, verdicts].softmax(-1)[0].item())
        return ids, scores

    return score


def actprm(place: Path) -> Score:
    tokenizer, (network, tensors) = _tokenizer(place), _decoder(place)
    first, second, last = (
        (tensors[f"score.model.{name}.weight"].double(), tensors[f"score.model.{name}.bias"].double())
        for name in ("nn1", "nn2", "nn_out")
    )

    @torch.no_grad()
    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        chat = [
            {"role": "system", "content": "Please reason step by step, and put your final answer within \\boxed{}."},
            {"role": "user", "content": problem},
            {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
        ]
        ids = _ids(tokenizer, tokenizer.apply_chat_template(chat, tokenize=False))
        hidden = network(torch.tensor([ids])).last_hidden_state[0].double()
        each = []
        for head in range(len(first[0])):
            made = torch.relu(hidden @ first[0][head] + first[1][head])
            made = torch.relu(made @ second[0][head] + second[1][head])
            each.append(torch.sigmoid(made @ last[0][head] + last[1][head])[:, 0])
        mean = torch.stack(each).mean(0)
        return ids, mean[torch.tensor(ids) == tokenizer.convert_tokens_to_ids("<extra_0>")].tolist()

    return score


def outcome(place: Path) -> Score:
    tokenizer, network = _tokenizer(place), AutoModelForSequenceClassification.from_pretrained(place).eval()

    @torch.no_grad()
    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        chat = [{"role": "user", "content": problem}, {"role": "assistant", "content": "\n\n".join(steps)}]
        text = tokenizer.apply_chat_template(chat, tokenize=False).removeprefix(tokenizer.bos_token or "")
        ids = list(tokenizer(text)["input_ids"])
        return ids, [torch.sigmoid(network(torch.tensor([ids])).logits[0][0].double()).item()] * len(steps)

    return score


def _decoder(place: Path) -> tuple[AutoModel, dict[str, torch.Tensor]]:
    network = AutoModel.from_pretrained(place, trust_remote_code=False).eval()
    return network, load_file(place / "model.safetensors")


def qwen_prm(place: Path) -> Score:
    tokenizer, (network, tensors) = _tokenizer(place), _decoder(place)
    width = network.config.hidden_size
    head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    head.load_state_dict({name.removeprefix("score."): tensor for name, tensor in tensors.items() if "score." in name})

    @torch.no_grad()
    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        chat = [
            {"role": "user", "content": problem},
            {"role": "assistant", "content": "".join(f"{step}<extra_0>" for step in steps)},
        ]
        ids = _ids(tokenizer, tokenizer.apply_chat_template(chat, tokenize=False))
        shares = head(network(torch.tensor([ids])).last_hidden_state[0]).softmax(-1)[:, 1]
        return ids, shares[torch.tensor(ids) == tokenizer.convert_tokens_to_ids("<extra_0>")].tolist()

    return score


def skywork(place: Path) -> Score:
    tokenizer, (network, tensors) = _tokenizer(place), _decoder(place)

    @torch.no_grad()
    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        ids = _ids(tokenizer, f"<|endoftext|>{problem}\n")
        flags = [False] * len(ids)
        for step in steps:
            step_ids = _ids(tokenizer, step) + _ids(tokenizer, "\n")[-1:]
            ids += step_ids
            flags += [False] * (len(step_ids) - 1) + [True]
        hidden = network(torch.tensor([ids])).last_hidden_state[0]
        values = hidden @ tensors["v_head.summary.weight"][0] + tensors["v_head.summary.bias"]
        return ids, values.sigmoid()[torch.tensor(flags)].tolist()

    return score


def eurus(place: Path, reference: Path, beta: float) -> Score:
    tokenizer, models = _tokenizer(place), [_causal(place), _causal(reference)]

    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        numbered = [f"Step {number}: {step}" for number, step in enumerate(steps, 1)]
        chat = [{"role": "user", "content": problem}, {"role": "assistant", "content": "\n\n".join(numbered)}]
        whole = tokenizer.apply_chat_template(chat, tokenize=False)
        ids = _ids(tokenizer, whole)
        logs = [model(ids).log_softmax(-1) for model in models]
        lengths = [len(tokenizer.decode(ids[: k + 1]).encode()) for k in range(len(ids))]
        begin = len(whole.partition("assistant\n")[0].encode()) + len("assistant\n")
        start = next(k for k, length in enumerate(lengths) if length > begin)
        scores = []
        for count in range(1, len(numbered) + 1):
            end = begin + len("\n\n".join(numbered[:count]).encode())
            last = next(k for k, length in enumerate(lengths) if length >= end)
            ratio = sum(logs[0][k - 1, ids[k]] - logs[1][k - 1, ids[k]] for k in range(start, last + 1))
            scores.append(torch.sigmoid(beta * ratio).item())
        return ids, scores

    return score


def _answered(place: Path, user: Callable[[str, str, int], str], words: Sequence[str], **fields: Any) -> Score:
    """P(the first word's first token) against the second's after each of the user's turns; all are answered with the
    first. `user`: the turn of problem, step and its index."""
    tokenizer, logits = _tokenizer(place), _causal(place)
    verdicts = [_ids(tokenizer, word)[0] for word in words]

    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        chat: list[dict[str, str]] = []
        scores = []
        for number, step in enumerate(steps):
            chat.append({"role": "user", "content": user(problem, step, number)})
            prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **fields)
            scores.append(logits(_ids(tokenizer, prompt))[-1, verdicts].softmax(-1)[0].item())
            chat.append({"role": "assistant", "content": words[0]})
        return _ids(tokenizer, tokenizer.apply_chat_template(chat, tokenize=False, **fields)), scores

    return score


FOVER_TASK = (
    "Your task is to evaluate the accuracy of each step in the provided solution to the above question. For each step, "
    'respond with "correct" if the reasoning is logically valid and mathematically sound, or if the step is a general '
    'statement or transition that does not contain reasoning. Respond with "incorrect" if the step includes any errors '
    "or flawed logic."
)


def fover(place: Path) -> Score:
    def user(problem: str, step: str, number: int) -> str:
        return step if number else f"** Problem **\n{problem}\n\n** Task **\n{FOVER_TASK}\n\n** Sotluion **\n{step}"

    return _answered(place, user, ["correct", "incorrect"])


def granite(place: Path) -> Score:
    def user(problem: str, step: str, number: int) -> str:
        return f"{step if number else f'{problem} {step}'} Is this response correct so far (Y/N)?"

    return _answered(place, user, ["Y", "N"], strftime_now=lambda layout: "June 24, 2025")


def versaprm(place: Path) -> Score:
    tokenizer, logits = _tokenizer(place), _causal(place)
    tag = " \n\n\n\n"
    tag_id, bad, good = (_ids(tokenizer, name)[0] for name in (tag, "-", "+"))

    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        cleaned = [text.strip().replace(tag, "") for text in (problem, *steps)]
        ids = list(tokenizer(f"{cleaned[0]} \n\n" + "".join(step + tag for step in cleaned[1:]))["input_ids"])
        return ids, logits(ids)[:, [bad, good]].softmax(-1)[torch.tensor(ids) == tag_id, 1].tolist()

    return score


def trl(place: Path) -> Score:
    tokenizer, network = _tokenizer(place), AutoModelForTokenClassification.from_pretrained(place).eval()
    separator = tokenizer.encode("\n", add_special_tokens=False)

    @torch.no_grad()
    def score(problem: str, steps: Sequence[str]) -> tuple[list[int], list[float]]:
        ids = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        ids += _ids(tokenizer, problem)
        ends = []
        for step in steps:
            ids += _ids(tokenizer, step) + separator
            ends.append(len(ids) - 1)
        return ids, network(torch.tensor([ids])).logits[0, ends].double().softmax(-1)[:, 1].tolist()

    return score
