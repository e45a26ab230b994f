"""Trains a model with TRL's GRPO; a solution's reward is that of its steps.

pip install -e . trl
python clients/examples/grpo.py problems.jsonl --model Qwen/Qwen2.5-Math-1.5B-Instruct --output runs/grpo

A line of problems.jsonl is {"problem": "…"}. With --process each token is rewarded by the steps that end there or later
(DeepSeekMath, arXiv:2402.03300, section 4.1.3), else each solution by its lowest step score. To try it without a GPU:
--model unprm/mini/weights/base against the embedded PRM.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset, load_dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from unprm_client import Client
from unprm_client.rewards import UNSCORABLE, process_advantages, rewards, solution_of_tokens

INSTRUCTION = "Solve the problem step by step, a blank line between steps, and put the answer in \\boxed{}."
Rewards = Callable[..., list[float]]


def step_rewards(client: Client) -> Rewards:
    """A reward function for TRL. Its `problem` is the data set's column of that name."""

    def prm(completions: Sequence[Any], problem: Sequence[str], **_: Any) -> list[float]:
        """The lowest step score of each solution; 0 for one that can't be scored."""
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        return rewards(client, problem, texts)

    return prm


class ProcessGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO whose advantages are those of tokens, by their steps. The reward functions are only logged."""

    def __init__(self, client: Client, **options: Any) -> None:
        super().__init__(**options)
        self.client = client

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        size, sampled = self.num_generations, made["completion_ids"]
        rows = [ids[used.bool()].tolist() for ids, used in zip(sampled, made["completion_mask"], strict=True)]
        groups = [
            self._advantages(inputs[start]["problem"], rows[start : start + size], sampled.shape[1])
            for start in range(0, len(rows), size)
        ]
        made["advantages"] = torch.cat(groups).to(sampled.device)
        return made

    def _advantages(self, problem: str, rows: Sequence[list[int]], width: int) -> torch.Tensor:
        """Those of a group's solutions, by their token ids: [solutions, width]."""
        solutions = [solution_of_tokens(row, self.processing_class) for row in rows]
        try:
            scored = self.client.score_steps(problem, solutions).solutions
        except UNSCORABLE:  # none of them can be scored
            return torch.zeros(len(rows), width)
        return torch.tensor(process_advantages(scored, width))


def prompts(file: str, chat: bool) -> Dataset:
    """The data set: TRL's `prompt`, a conversation if the model has a chat template, and the `problem` itself."""

    def prompt(row: dict[str, Any]) -> dict[str, Any]:
        if not chat:
            return {"prompt": f"{row['problem']}\n"}
        return {"prompt": [{"role": "user", "content": f"{INSTRUCTION}\n\n{row['problem']}"}]}

    return load_dataset("json", data_files=file, split="train").select_columns(["problem"]).map(prompt)


def main() -> None:
    """Trains and saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems")
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--solutions", type=int, default=8, help="solutions per problem")
    parser.add_argument("--tokens", type=int, default=512, help="most tokens of a solution")
    parser.add_argument("--process", action="store_true", help="reward tokens, by their steps")
    parser.add_argument("--steps", type=int, default=-1, help="optimizer steps; by default one epoch")
    options = parser.parse_args()
    config = GRPOConfig(
        output_dir=options.output,
        per_device_train_batch_size=options.solutions,
        num_generations=options.solutions,
        max_completion_length=options.tokens,
        max_steps=options.steps,
        num_train_epochs=1,
        bf16=torch.cuda.is_available(),
        dataloader_pin_memory=torch.cuda.is_available(),
        logging_steps=1,
        report_to=[],
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    with Client() as client:
        kind = partial(ProcessGRPOTrainer, client) if options.process else GRPOTrainer
        trainer = kind(
            model=options.model,
            processing_class=tokenizer,
            reward_funcs=step_rewards(client),
            args=config,
            train_dataset=prompts(options.problems, tokenizer.chat_template is not None),
        )
        trainer.train()
    trainer.save_model(options.output)


if __name__ == "__main__":
    main()
