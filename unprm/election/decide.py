"""Electing an answer from candidate solutions. Pure: classes of answers and rewards in, a result out."""

from collections.abc import Sequence
from typing import TypeVar

from unprm.errors import InvalidRequest, NoAnswer
from unprm.types import AnswerClass, DecidedBy, VoteResult
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.votes.vote import TIE, Group, GroupScore, Signal, Tally, Terms, Values, Vote, by_frequency, mean

Value = TypeVar("Value")


class RewardsMissing(InvalidRequest):
    """A vote that rewards decide, among candidates without any."""


def tally(classes: Sequence[int | None], terms: Terms, values: Values | None = None) -> Tally:
    """The input of a vote; the groups in order of first appearance. `classes` as in `decide`."""
    members: dict[int, list[int]] = {}
    for index, name in enumerate(classes):
        if name is not None:
            members.setdefault(name, []).append(index)
    return Tally([Group(tuple(each)) for each in members.values()], len(classes), terms, values)


def needed_signal(strategy: Strategy, classes: Sequence[int | None], terms: Terms = DEFAULTS) -> Signal:
    """What a vote needs of these candidates beside their answers: nothing where frequency alone decides, and for a
    single answer. `classes` as in `decide`."""
    vote, unvalued = VOTES[strategy], tally(classes, terms)
    if len(unvalued.groups) <= 1 or vote.frequency_decides(unvalued):
        return "none"
    return vote.signal


def of_answered(classes: Sequence[int | None], values: Sequence[Value | None]) -> list[Value | None] | None:
    """One value per candidate, those of candidates without an answer left out: a candidate that can't win takes no
    place from those that can. None if no candidate with an answer has a value. `classes` as in `decide`."""
    kept = [None if name is None else value for name, value in zip(classes, values, strict=True)]
    return None if all(value is None for value in kept) else kept


def decide(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Values | None = None,
    terms: Terms = DEFAULTS,
    confidences: Values | None = None,
) -> VoteResult:
    """Elects a class.

    `classes[i]`: the answer class of candidate i, None if it has no answer; it then can't win, but counts in N.
    `rewards[i]`: in [0, 1]; None if candidate i could not be scored: the reward of its class then comes from the
    other members, 0 if there is none. `confidences[i]`: ≥ 0, likewise. If frequency alone decides, neither changes
    anything. Ties (within `TIE`) go to the higher frequency, then to the higher mean reward, then to the class that
    appears first.

    Raises `NoAnswer` if no candidate has an answer; `RewardsMissing` if `needed_signal` names rewards, `ValueError` if
    it names confidences, and no candidate with an answer has one.
    """
    vote, values = VOTES[strategy], None
    given = {"none": None, "reward": rewards, "confidence": confidences}[vote.signal]
    if given is not None:
        values = of_answered(classes, given)
    ballots = tally(classes, terms, values)
    if not ballots.groups:
        raise NoAnswer(len(classes))
    if values is None and (signal := needed_signal(strategy, classes, terms)) != "none":
        why = f"{strategy} needs the candidates' {signal}s to decide this vote"
        if signal == "reward":
            raise RewardsMissing(f"{why}: send step_scores with every solution, or vote by majority")
        raise ValueError(why)
    frequency = vote.frequency_decides(ballots)
    scores = (by_frequency if frequency else vote.score)(ballots)
    answers = [_answer_class(group, rewards, each) for group, each in zip(ballots.groups, scores, strict=True)]
    ranked = _rank(answers, by_reward=vote.signal == "reward" and not frequency)
    tied = _tied(ranked)
    return VoteResult(
        strategy=strategy,
        decided_by=_decided_by(vote, ballots, frequency),
        classes=tuple(ranked),
        solution_index=ranked[0].members[0] if frequency else representative(ranked[0].members, values),
        tied=tuple(range(len(tied))) if len(tied) > 1 else (),
        margin=_margin(ranked),
    )


def decide_by(
    strategy: Strategy, classes: Sequence[int | None], values: Values | None, terms: Terms = DEFAULTS
) -> VoteResult:
    """As `decide`, with values of the one signal that the vote takes."""
    if VOTES[strategy].signal == "confidence":
        return decide(strategy, classes, None, terms, values)
    return decide(strategy, classes, values, terms)


def _decided_by(vote: Vote, ballots: Tally, frequency: bool) -> DecidedBy:
    if len(ballots.groups) == 1:
        return "unanimous" if ballots.counts == [ballots.total] else "only_answer"
    return "majority" if frequency else vote.decided_by


def _answer_class(group: Group, rewards: Values | None, scored: GroupScore) -> AnswerClass:
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
