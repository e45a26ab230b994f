"""Electing an answer from candidate solutions. Pure: classes of answers and rewards in, a result out."""

from collections.abc import Sequence
from typing import TypeVar, get_args

from unprm.errors import NoAnswer
from unprm.types import AnswerClass, DecidedBy, Strategy, VoteResult
from unprm.votes.rules import RULES, Ballot, Group, Rule, Scored, Signal, Values, by_frequency, mean
from unprm.wire import VoteTerms

TIE = 1e-9
"""Scores that differ by at most this are tied."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
REWARD_STRATEGIES: tuple[Strategy, ...] = tuple(name for name in STRATEGIES if RULES[name].signal != "confidence")
"""The votes for which answers and rewards are enough."""

DEFAULTS = VoteTerms()

Value = TypeVar("Value")


def needed_signal(strategy: Strategy, classes: Sequence[int | None], terms: VoteTerms = DEFAULTS) -> Signal:
    """What a vote needs of these candidates beside their answers.

    `classes` as in `decide`. A single class wins without anything; `majority` never needs more, `hmr` only if no class
    has a majority, `best_of_majority` if several are frequent.
    """
    counts = _counts(classes)
    if len(counts) <= 1 or RULES[strategy].majority([*counts.values()], len(classes), terms):
        return "none"
    return RULES[strategy].signal


def needs_rewards(strategy: Strategy, classes: Sequence[int | None], terms: VoteTerms = DEFAULTS) -> bool:
    """Whether a vote has to score the candidates; arguments as in `needed_signal`."""
    return needed_signal(strategy, classes, terms) == "reward"


def of_answered(classes: Sequence[int | None], values: Sequence[Value | None]) -> list[Value | None] | None:
    """One value per candidate, those of candidates without an answer left out: a candidate that can't win takes no
    place from those that can. None if no candidate with an answer has a value. `classes` as in `decide`."""
    kept = [None if name is None else value for name, value in zip(classes, values, strict=True)]
    return None if all(value is None for value in kept) else kept


def decide(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Values | None = None,
    terms: VoteTerms = DEFAULTS,
    confidences: Values | None = None,
) -> VoteResult:
    """Elects a class.

    `classes[i]`: the answer class of candidate i, None if it has no answer; it then can't win, but counts in N.
    `rewards[i]`: in [0, 1]; None if candidate i could not be scored: the reward of its class then comes from the
    other members, 0 if there is none. `confidences[i]`: ≥ 0, likewise. If frequency alone decides, neither changes
    anything. Ties (within `TIE`) go to the higher frequency, then to the higher mean reward, then to the class that
    appears first.

    Raises `NoAnswer` if no candidate has an answer, `ValueError` if `needed_signal` names rewards or confidences and no
    candidate with an answer has one.
    """
    rule, counts = RULES[strategy], _counts(classes)
    if not counts:
        raise NoAnswer(len(classes))
    signal = needed_signal(strategy, classes, terms)
    values = {"none": None, "reward": rewards, "confidence": confidences}[rule.signal]
    if values is not None:
        values = of_answered(classes, values)
    if signal != "none" and values is None:
        raise ValueError(f"{strategy} needs the candidates' {signal}s to decide this vote")
    by_majority = rule.majority([*counts.values()], len(classes), terms)
    groups = [Group(tuple(index for index, other in enumerate(classes) if other == name)) for name in counts]
    score = by_frequency if by_majority else rule.score
    scored = score(Ballot(groups, len(classes), values, terms))
    answers = [_answer_class(group, rewards, each) for group, each in zip(groups, scored, strict=True)]
    ranked = _rank(answers, by_reward=rule.signal == "reward" and not by_majority)
    tied = _tied(ranked)
    return VoteResult(
        strategy=strategy,
        decided_by=_decided_by(rule, len(counts), by_majority),
        classes=tuple(ranked),
        solution_index=ranked[0].members[0] if by_majority else representative(ranked[0].members, values),
        tied=tuple(range(len(tied))) if len(tied) > 1 else (),
        margin=_margin(ranked),
    )


def _counts(classes: Sequence[int | None]) -> dict[int, int]:
    """Frequency of each class, in order of first appearance."""
    counts: dict[int, int] = {}
    for name in classes:
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _decided_by(rule: Rule, answers: int, by_majority: bool) -> DecidedBy:
    if answers == 1:
        return "unanimous"
    return "majority" if by_majority else rule.decided_by


def _answer_class(group: Group, rewards: Values | None, scored: Scored) -> AnswerClass:
    known = [] if rewards is None else group.of(rewards)
    average, highest = (mean(known), max(known)) if known else (None, None)
    return AnswerClass(
        group.members, average, highest, scored.normalized_reward, scored.normalized_frequency, scored.score
    )


def _rank(classes: Sequence[AnswerClass], *, by_reward: bool) -> list[AnswerClass]:
    """Best first: repeatedly takes the preferred class among those tied with the best remaining one."""
    left, ranked = list(classes), []
    while left:
        best = min(_tied(left), key=_preference if by_reward else _frequency)
        left.remove(best)
        ranked.append(best)
    return ranked


def _preference(answer: AnswerClass) -> tuple[int, float, int]:
    return (-answer.count, -(answer.mean_reward or 0.0), answer.members[0])


def _frequency(answer: AnswerClass) -> tuple[int, int]:
    return (-answer.count, answer.members[0])


def _tied(classes: Sequence[AnswerClass]) -> list[AnswerClass]:
    """The classes whose score is within `TIE` of the highest."""
    scores = [answer.score for answer in classes if answer.score is not None]
    if not scores:
        return list(classes)
    top = max(scores)
    return [c for c in classes if c.score is not None and top - c.score <= TIE]


def _margin(ranked: Sequence[AnswerClass]) -> float | None:
    if len(ranked) < 2 or ranked[0].score is None or ranked[1].score is None:
        return None
    # the winner of a tie may have a slightly lower score
    return max(0.0, ranked[0].score - ranked[1].score)


def representative(members: Sequence[int], values: Values | None) -> int:
    """The solution to show for an answer: the first of its members with the highest value, or the first if none has
    one."""
    if values is None:
        return members[0]
    return max(members, key=lambda index: (-1.0 if values[index] is None else values[index], -index))
