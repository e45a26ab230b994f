"""Makes a judge from its options, finds out what its server can do, and tests it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from unprm.calibration import Calibration
from unprm.engines.judge.chain import Chain, StepChain
from unprm.engines.judge.chat import JudgeChat, Refused, Sample
from unprm.engines.judge.engine import JudgeEngine
from unprm.engines.judge.layouts import FOVER, GENPRM, GRANITE, PLAIN, PLAIN_CHAIN, THINKPRM, StepLayout, grades
from unprm.engines.judge.readout import BYTES_PER_TOKEN, CALL, JudgeReadout, mean
from unprm.engines.judge.stepwise import ANSWER_TOKENS, Stepwise
from unprm.errors import ModelInvalid, ModelUnreachable
from unprm.models.names import public_name
from unprm.models.options import EngineOptions, JudgeOptions
from unprm.openai_api import Observe, ignore
from unprm.steps import THRESHOLD
from unprm.types import Asked, BatchScores, ModelDescription, SelfTest

logger = logging.getLogger(__name__)

BUSY = 2
"""A batch has as many calls as this many times those in flight: while the last ones are waited for, others run."""
SHARE = 0.9
"""A batch may take this share of the time after which its caller takes the engine for hung."""
LIKELIEST = (20, 5)
"""How many tokens' log-probabilities are asked for; the second where the server refuses the first."""
TOLERANCE = 0.1
"""Largest difference between scores of the same step; servers that batch compute slightly differently each time."""

_VERDICT_LAYOUTS: dict[str, StepLayout] = {"plain": PLAIN, "fover": FOVER, "granite": GRANITE}
_CHAINS: dict[str, Callable[[int, int], JudgeReadout]] = {
    "plain": partial(Chain, PLAIN_CHAIN),
    "thinkprm": partial(Chain, THINKPRM),
    "genprm": partial(StepChain, GENPRM),
}
_SUM, _RIGHT, _WRONG = "1 + 1 = ?", "1 + 1 = 2", "1 + 1 = 3"


def load_judge(judge: JudgeOptions, options: EngineOptions, patience: float, observe: Observe = ignore) -> JudgeEngine:
    """The judge, tested. `patience`: seconds after which its caller takes it for hung. `observe` as in `OpenAIClient`.

    Raises `ModelInvalid` if options are missing or don't fit together, if its server does not answer as OpenAI's API
    does, or if it can't judge a plain sum.
    """
    if judge.judge_url is None or judge.judge_model is None:
        raise ModelInvalid("--model judge needs --judge-url and --judge-model")
    readout = pick_readout(judge)
    key = options.judge_key.get_secret_value() if options.judge_key else None
    chat = JudgeChat(judge.judge_url, key, judge.judge_model, judge.judge_concurrency, judge.judge_seconds, observe)
    name = public_name(judge.judge_model)
    description = ModelDescription(
        name=name,
        family="judge",
        base=name,
        adapter=None,
        revision=None,
        engine="judge",
        device=judge.judge_url,
        dtype="auto",
        max_tokens=BYTES_PER_TOKEN * options.max_solution_tokens,
        input_format="",
        calibration=Calibration.read(judge.judge_calibration) if judge.judge_calibration else Calibration(),
        demo=False,
        asked=Asked(BUSY * judge.judge_concurrency * CALL * readout.rounds, judge.judge_prompt_tokens),
    )
    engine = JudgeEngine(chat, readout, description, SHARE * patience)
    try:
        engine.run(probe(chat, readout))
        about = f"{judge.judge_readout}, layout {judge.judge_layout}: {readout.described(chat.likeliest)}"
        engine.description = replace(description, input_format=about)
        logger.info("the judge is read by %s", about)
        engine.description = replace(engine.description, self_test=self_test(engine, sampled=_sampled(chat, readout)))
    except (ModelInvalid, ModelUnreachable) as error:
        engine.close()
        raise ModelInvalid(f"{judge.judge_url}: {error}") from error
    return engine


def pick_readout(judge: JudgeOptions) -> JudgeReadout:
    """The read-out; raises `ModelInvalid` if the layout or the criteria are another one's."""
    kind, layout = judge.judge_readout, judge.judge_layout
    layouts = {"verdict": _VERDICT_LAYOUTS, "grade": {"plain"}, "chain": _CHAINS}[kind]
    if layout not in layouts:
        raise ModelInvalid(f"--judge-readout {kind} has the layouts {', '.join(layouts)}, not {layout}")
    if judge.judge_criterion and kind != "grade":
        raise ModelInvalid("--judge-criterion goes with --judge-readout grade")
    if kind == "chain":
        return _CHAINS[layout](judge.judge_repeats, judge.judge_tokens)
    if kind == "grade":
        return Stepwise([grades(criterion) for criterion in judge.judge_criterion or [""]], judge.judge_repeats)
    return Stepwise([_VERDICT_LAYOUTS[layout]], judge.judge_repeats)


async def probe(chat: JudgeChat, readout: JudgeReadout) -> None:
    """Sets how many tokens' log-probabilities the server gives, and how many tokens an answer takes.

    Raises `ModelInvalid` if it refuses the conversation itself, and `ModelUnreachable`.
    """
    (messages, *_) = readout.conversations(_SUM, [_RIGHT])
    for likeliest in LIKELIEST:
        try:
            found = await chat.complete(messages, max_tokens=1, temperature=0.0, likeliest=likeliest)
        except Refused:
            continue
        if any(token.top_logprobs for sample in found.samples for token in sample.tokens):
            chat.likeliest = likeliest
            chat.answer_tokens = ANSWER_TOKENS if _blank(found.samples) else 1
        return
    try:
        await chat.complete(messages, max_tokens=1, temperature=0.0)
    except Refused as error:
        raise ModelInvalid(
            f"the judge's server refuses the conversation ({error}): does it serve --judge-model, and does the model's "
            "chat template take a system message?"
        ) from None


def self_test(engine: JudgeEngine, *, sampled: bool) -> SelfTest:
    """Scores a right and a wrong sum, together and in the other order; both must keep their places. `sampled`: scores
    are means over samples, and differ.

    Raises `ModelInvalid` if scores change places, if no verdict is found on one of them, or if it is not that the right
    one is right and the wrong one wrong; `ModelUnreachable` if the judge does not answer.
    """
    right, wrong = (engine.format.encode(_SUM, [step]) for step in (_RIGHT, _WRONG))
    first, second = engine.score([right, wrong]), engine.score([wrong, right])
    pairs = list(zip(_read(first), reversed(_read(second)), strict=True))
    rights, wrongs = map(mean, pairs)
    if rights is None or wrongs is None:
        raise ModelInvalid(
            "in the self-test the judge gives no verdict that can be read; a reasoning model needs --judge-readout "
            "chain, and tokens enough for it (--judge-tokens)"
        )
    difference = max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=0.0)
    tolerance = 1.0 if sampled else TOLERANCE
    logger.info("self-test: the right sum scores %.3f, the wrong one %.3f", rights, wrongs)
    if difference > tolerance:
        raise ModelInvalid(f"in the self-test scores of the same step differ by {difference:.2f}")
    if not wrongs < THRESHOLD <= rights:
        raise ModelInvalid(
            f"in the self-test {_RIGHT} scores {rights:.2f} and {_WRONG} {wrongs:.2f}, which must lie on either side "
            f"of {THRESHOLD:g}: it is no judge"
        )
    return SelfTest(difference, tolerance, cached=_cached(second))


def _read(scores: BatchScores) -> list[float | None]:
    """The score of each item's only step, None without a verdict."""
    unread = scores.unread or [0] * len(scores.scores)
    return [None if missing else score for (score,), missing in zip(scores.scores, unread, strict=True)]


def _cached(scores: BatchScores) -> bool:
    return sum(scores.computed) < sum(scores.tokens or ())


def _blank(samples: Sequence[Sample]) -> bool:
    """Whether the answer begins with a token of white space alone."""
    return any(not sample.tokens[0].token.strip(" \n\t▁Ġ") for sample in samples if sample.tokens)


def _sampled(chat: JudgeChat, readout: JudgeReadout) -> bool:
    return not chat.likeliest or isinstance(readout, Chain | StepChain)
