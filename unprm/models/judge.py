"""Makes a judge from its options, finds out what its server can do, and tests it."""

import logging

from unprm.calibration import Calibration
from unprm.engines.judge.chat import JudgeChat, Refused
from unprm.engines.judge.engine import JudgeEngine
from unprm.engines.judge.layouts import GENPRM, THINKPRM, WORDINGS, checks, verdicts
from unprm.engines.judge.methods import (
    ANSWER_TOKENS,
    BYTES_PER_TOKEN,
    CALL,
    Chain,
    JudgeMethod,
    JudgeMethods,
    StepChain,
    Stepwise,
)
from unprm.engines.judge.self_test import QUESTIONS, self_test
from unprm.errors import ModelInvalid, ModelUnreachable
from unprm.models.options import EngineOptions, JudgeOptions, public_name
from unprm.openai.client import Observe, ignore
from unprm.types import ModelDescription, PromptLimits

logger = logging.getLogger(__name__)

BUSY = 2
"""A batch has as many calls as this many times those in flight: while the last ones are waited for, others run."""
SHARE = 0.9
"""A batch may take this share of the time after which its caller considers the engine hung."""
LIKELIEST = (20, 5)
"""Number of tokens whose log-probabilities are requested; the second if the server refuses the first."""
LAYOUTS = {"verdict": ("plain",), "chain": ("plain", "thinkprm", "genprm")}
"""The layouts of each method."""


def load_judge(judge: JudgeOptions, options: EngineOptions, patience: float, observe: Observe = ignore) -> JudgeEngine:
    """The judge, tested. `patience`: seconds after which its caller takes it for hung. Raises `ModelInvalid` if options
    don't fit, or the server is no judge of plain word problems."""
    methods = pick_methods(judge)
    method, chat = methods[None], open_chat(judge, options, observe)
    name = public_name(chat.model)
    description = ModelDescription(
        name=name,
        family="judge",
        base=name,
        engine="judge",
        device=str(judge.judge_url),
        dtype="auto",
        max_tokens=BYTES_PER_TOKEN * options.max_solution_tokens,
        input_format="",
        calibration=Calibration.read(judge.judge_calibration) if judge.judge_calibration else Calibration(),
    )
    engine = JudgeEngine(chat, methods, description, SHARE * patience)
    try:
        engine.call(probe(chat, method))
        about = f"{judge.judge_readout}, layout {judge.judge_layout}: {method.described(chat.likeliest)}"
        batch = BUSY * engine.call(chat.in_flight()) * CALL * method.rounds
        limits = PromptLimits(batch, judge.judge_prompt_tokens)
        engine.description = description.model_copy(update={"input_format": about, "prompt_limits": limits})
        logger.info("the judge is read by %s", about)
        tested = self_test(engine, sampled=method.written or not chat.likeliest, few=method.written)
        engine.description = engine.description.model_copy(update={"self_test": tested})
    except (ModelInvalid, ModelUnreachable) as error:
        engine.close()
        raise ModelInvalid(f"{judge.judge_url}: {error}") from error
    return engine


def open_chat(judge: JudgeOptions, options: EngineOptions, observe: Observe = ignore) -> JudgeChat:
    """Raises `ModelInvalid` without an address or a model."""
    if judge.judge_url is None or judge.judge_model is None:
        raise ModelInvalid("a judge needs --judge-url and --judge-model")
    key = options.judge_key.get_secret_value() if options.judge_key else None
    return JudgeChat(judge.judge_url, key, judge.judge_model, judge.judge_concurrency, judge.judge_seconds, observe)


def pick_methods(judge: JudgeOptions) -> JudgeMethods:
    """The methods for steps of solutions and for actions; published verifiers have one for both. Raises
    `ModelInvalid`."""
    kind, layout, settings = judge.judge_readout, judge.judge_layout, (judge.judge_repeats, judge.judge_tokens)
    if layout not in LAYOUTS[kind]:
        raise ModelInvalid(f"--judge-readout {kind} has the layouts {', '.join(LAYOUTS[kind])}, not {layout}")
    if layout == "genprm":
        return dict.fromkeys(WORDINGS, StepChain(GENPRM, *settings))
    if layout == "thinkprm":
        return dict.fromkeys(WORDINGS, Chain(THINKPRM, *settings))
    if kind == "chain":
        return {evidence: Chain(checks(words), *settings) for evidence, words in WORDINGS.items()}
    return {evidence: Stepwise(verdicts(words), *settings) for evidence, words in WORDINGS.items()}


async def probe(chat: JudgeChat, method: JudgeMethod) -> None:
    """Finds out how many tokens' log-probabilities the server gives, and tokens of an answer. Raises `ModelInvalid`."""
    messages = method.layout.messages(QUESTIONS[0].problem, [*QUESTIONS[0].steps, QUESTIONS[0].right])
    for likeliest in (*LIKELIEST, 0):
        try:
            choices, _ = await chat.complete(messages, max_tokens=1, temperature=0.0, likeliest=likeliest)
        except Refused as error:
            refusal = error
            continue
        if any(token.top_logprobs for choice in choices for token in choice.tokens):
            chat.likeliest = likeliest
            # an answer that begins with a token of white space alone takes more than one
            chat.answer_tokens = ANSWER_TOKENS if any(c.tokens and c.tokens[0].is_blank for c in choices) else 1
        return
    raise ModelInvalid(
        f"the judge's server refuses the conversation ({refusal}): does it serve --judge-model, and does the model's "
        "chat template take a system message?"
    )
