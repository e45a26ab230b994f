"""Samples with transformers on this machine: the default for the embedded model, at work on a CPU or a GPU."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from unprm.errors import SamplerFailed
from unprm.samplers.prompts import Prompter, end_tokens
from unprm.types import Completion, SamplingSettings

BATCH = 128
"""Completions that are written at the same time."""


@dataclass(slots=True)
class _Call:
    """A call of `complete`, and the completions it has got so far, by their index."""

    prompt: tuple[int, ...]
    count: int
    seed: int
    done: asyncio.Future[list[Completion]]
    completions: dict[int, Completion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    call: _Call
    index: int


class TransformersSampler:
    """Completions that wait are written together, in batches of prompts of similar length.

    Every completion has a random generator of its own, from the call's seed and its index: what else is in the
    batch does not matter, but for the last digits of the arithmetic.
    """

    def __init__(self, model: PreTrainedModel, directory: Path, name: str, settings: SamplingSettings) -> None:
        self._network, self._name, self._settings = model, name, settings
        self._prompter = Prompter.load(directory)
        self._ends = end_tokens(directory)
        self._waiting: list[_Row] = []
        self._work: asyncio.Task[None] | None = None

    @property
    def model(self) -> str:
        """The model's name."""
        return self._name

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Token ids that ask for a solution."""
        return self._prompter.encode(problem)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return self._prompter.decode(ids)

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem."""
        return await self.complete(self.prompt(problem), count, seed, affinity="")

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt. Raises `SamplerFailed` if it leaves no room in the model's window."""
        window = self._network.config.max_position_embeddings
        if not 0 < len(prompt) < window:
            raise SamplerFailed(f"a prompt takes 1 to {window - 1} tokens of {self.model}, {len(prompt)} were given")
        call = _Call(tuple(prompt), count, seed, asyncio.get_running_loop().create_future())
        self._waiting += [_Row(call, index) for index in range(count)]
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._write_all())
        return await call.done

    async def close(self) -> None:
        """Waits for the batch at work."""
        self._waiting.clear()
        if self._work is not None:
            await self._work

    async def _write_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # lets every call that is ready come in
            rows = self._next_batch()
            try:
                completions = await asyncio.to_thread(self._write, rows)
            except Exception as error:  # every caller hears of it, and the next batch goes on
                failure = SamplerFailed(f"{self.model} failed on a batch of {len(rows)}: {error!r}")
                for row in rows:
                    if not row.call.done.done():
                        row.call.done.set_exception(failure)
                continue
            for row, completion in zip(rows, completions, strict=True):
                row.call.completions[row.index] = completion
                if len(row.call.completions) == row.call.count and not row.call.done.done():
                    row.call.done.set_result([row.call.completions[index] for index in range(row.call.count)])

    def _next_batch(self) -> list[_Row]:
        """The row that has waited longest, and those whose prompts come closest to its own in length."""
        self._waiting = [row for row in self._waiting if not row.call.done.done()]
        length = len(self._waiting[0].call.prompt) if self._waiting else 0
        nearest = sorted(self._waiting, key=lambda row: abs(len(row.call.prompt) - length))
        rows, self._waiting = nearest[:BATCH], sorted(nearest[BATCH:], key=self._waiting.index)
        return rows

    @torch.inference_mode()
    def _write(self, rows: Sequence[_Row]) -> list[Completion]:
        device = self._network.device
        unique = list({row.call.prompt: None for row in rows})
        longest = max(map(len, unique))
        ids = torch.zeros(len(unique), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, prompt in enumerate(unique):
            ids[number, longest - len(prompt) :] = torch.tensor(prompt)
            mask[number, longest - len(prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        which = torch.tensor([unique.index(row.call.prompt) for row in rows], device=device)
        choose = _Choose([row.call.seed + row.index for row in rows], self._settings, self._ends, device)
        room = self._network.config.max_position_embeddings - longest
        written = self._network.generate(
            input_ids=ids[which],
            attention_mask=mask[which],
            past_key_values=self._prefill(ids, mask, which),
            do_sample=False,  # `choose` leaves one token to each row
            max_new_tokens=min(self._settings.max_tokens, room),
            eos_token_id=list(self._ends),
            pad_token_id=self._ends[0],
            logits_processor=LogitsProcessorList([choose]),
        )[:, longest:]
        logprobs = torch.stack(choose.logprobs, dim=1)  # (rows, tokens)
        return [self._completion(*row) for row in zip(written.tolist(), logprobs.tolist(), strict=True)]

    def _prefill(self, ids: torch.Tensor, mask: torch.Tensor, which: torch.Tensor) -> DynamicCache:
        """Keys and values of the prompts (prompts, length) but for their last token, computed once for each and
        laid out for the rows that go on from them."""
        cache = DynamicCache(config=self._network.config)
        if ids.shape[1] > 1:
            positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)[:, :-1]
            self._network.get_decoder()(
                input_ids=ids[:, :-1], attention_mask=mask[:, :-1], position_ids=positions, past_key_values=cache
            )
            cache.batch_select_indices(which)
        return cache

    def _completion(self, ids: list[int], logprobs: list[float]) -> Completion:
        end = next((index for index, token in enumerate(ids) if token in self._ends), None)
        length = len(ids) if end is None else end + 1
        kept = tuple(ids[:length])
        # five digits are more than the arithmetic repeats on another machine
        rounded = tuple(round(min(0.0, logprob), 5) for logprob in logprobs[:length])
        return Completion(self.decode(kept), kept, rounded, end is not None)


class _Choose(LogitsProcessor):  # type: ignore[misc]
    """Draws each row's next token with the row's own generator, by the Gumbel maximum (an exponential race), and
    notes its log-probability before temperature in `logprobs`, (rows,) per token."""

    def __init__(
        self, seeds: Sequence[int], settings: SamplingSettings, ends: Sequence[int], device: torch.device
    ) -> None:
        self.settings, self.logprobs = settings, list[torch.Tensor]()
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.ends = torch.tensor(ends, device=device)
        self.going = torch.ones(len(seeds), dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        logprobs = torch.log_softmax(scores.float(), dim=-1)  # (rows, vocabulary)
        chosen = self._draw(logprobs)
        self.logprobs.append(logprobs.gather(1, chosen[:, None])[:, 0].cpu())
        self.going &= ~torch.isin(chosen, self.ends)
        only = torch.full_like(scores, -torch.inf)
        return only.scatter(1, chosen[:, None], 0.0)

    def _draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        if self.settings.temperature == 0:
            return logprobs.argmax(dim=-1)
        scaled = torch.log_softmax(logprobs / self.settings.temperature, dim=-1)
        if self.settings.top_p < 1:
            scaled = _nucleus(scaled, self.settings.top_p)
        noise = torch.ones_like(scaled)
        for row in self.going.nonzero()[:, 0].tolist():
            noise[row].exponential_(generator=self.generators[row])
        return (scaled - noise.log()).argmax(dim=-1)


def _nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Leaves out the least likely tokens, as many as the rest reaches `top_p` without."""
    ranked, order = logprobs.sort(dim=-1, descending=True)
    before = ranked.exp().cumsum(dim=-1) - ranked.exp()
    return logprobs.masked_fill((before >= top_p).gather(1, order.argsort(dim=-1)), -torch.inf)
