"""Whether a vote among some of a question's candidates is right."""

from collections.abc import Callable, Sequence

from training.judging import JudgedCandidates
from training.settings import WRF, WrfSettings
from unprm import votes
from unprm.types import AnswerClass, Strategy, VoteResult

RightShare = Callable[[JudgedCandidates, Sequence[int]], float]
"""How much of a decision among these candidates (indices) is right, in [0, 1]; between only for ties."""


def uses_rewards(strategy: Strategy) -> bool:
    """Whether rewards ever change what a vote elects."""
    return votes.needs_rewards(strategy, (0, 1))


def right_share(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings = WRF) -> float:
    """How much of a vote among these candidates (indices) is right, in [0, 1]; 0 if it can elect none.

    The answer that is elected is right or not. But where tied answers differ in nothing but the order of their first
    candidates, it is the share of them that are right: the order is luck.
    """
    result = _vote(strategy, judged, picks, wrf)
    if result is None:
        return 0.0
    _, *others = _level(result)
    stand_for = [result.solution_index, *(answer_class.members[0] for answer_class in others)]
    return sum(judged.correct[picks[k]] for k in stand_for) / len(stand_for)


def _level(result: VoteResult) -> list[AnswerClass]:
    """The elected class and those that only came later: tied with it and, where the vote uses rewards, as frequent and
    with the same mean reward."""
    winner = result.classes[0]
    tied = [result.classes[k] for k in result.tied] or [winner]
    if result.decided_by == "majority":
        return tied
    return [
        answer_class
        for answer_class in tied
        if (answer_class.count, answer_class.mean_reward) == (winner.count, winner.mean_reward)
    ]


def elects_right(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings = WRF) -> bool:
    """Whether the answer that a vote among these candidates elects is right, the first of tied ones."""
    result = _vote(strategy, judged, picks, wrf)
    return result is not None and judged.correct[picks[result.solution_index]]


def _vote(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], wrf: WrfSettings) -> VoteResult | None:
    """None if there is no answer to elect, or no reward where the vote needs one."""
    classes, rewards = [judged.classes[k] for k in picks], [judged.rewards[k] for k in picks]
    unscored = all(reward is None for reward in rewards)
    if all(name is None for name in classes) or (unscored and votes.needs_rewards(strategy, classes)):
        return None
    return votes.decide(strategy, classes, rewards, wrf.alpha, wrf.normalization)
