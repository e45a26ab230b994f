"""Electing an answer from candidate solutions. Pure: classes of answers and rewards in, a result out."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from pydantic import BaseModel

from unprm.errors import InvalidRequest, NoAnswer
from unprm.types import AnswerGroup, DecidedBy
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.votes.vote import TIE, Signal, Tally, Values, by_frequency, known, mean
from unprm.wire import Election

Value = TypeVar("Value")


class RewardsMissing(InvalidRequest):
    """A vote that rewards decide, among candidates without any."""


def tally(
    classes: Sequence[int | None], terms: BaseModel, values: Values | None = None, answers: Sequence[str] | None = None
) -> Tally:
    """The input of a vote; the groups in order of first appearance. `classes` and `answers` as in `decide`."""
    members: dict[int, list[int]] = {}
    for index, name in enumerate(classes):
        if name is not None:
            members.setdefault(name, []).append(index)
    groups = [AnswerGroup(answers[same[0]] if answers else "", len(same), same) for same in members.values()]
    return Tally(groups, len(classes), terms, values)


def needed_signal(strategy: Strategy, classes: Sequence[int | None], terms: BaseModel = DEFAULTS) -> Signal:
    """What a vote needs beside answers: nothing for a single answer, or where frequency alone decides."""
    vote, unvalued = VOTES[strategy], tally(classes, terms)
    if len(unvalued.groups) <= 1 or vote.frequency_decides(unvalued):
        return "none"
    return vote.signal


def drop_unanswered(classes: Sequence[int | None], values: Sequence[Value | None]) -> list[Value | None] | None:
    """One value per candidate, None without an answer, which can't win and takes no place; None if none is left."""
    kept = [None if name is None else value for name, value in zip(classes, values, strict=True)]
    return None if all(value is None for value in kept) else kept


def decide(
    strategy: Strategy,
    classes: Sequence[int | None],
    rewards: Values | None = None,
    terms: BaseModel = DEFAULTS,
    values: Values | None = None,
    answers: Sequence[str] | None = None,
    flawed: Collection[int] = (),
) -> Election:
    """Elects a class.

    `classes[i]`: the answer class of candidate i, None without an answer, which can't win but counts in N.
    `rewards[i]`: in [0, 1], None if there is none: the class has those of its other members, else 0. `values[i]`, ≥ 0:
    of another signal that the vote takes, likewise. Ties (within `TIE`) go to the higher frequency, then to the higher
    mean reward, then to the fewest `flawed` candidates (indices), then to the first. `answers[i]`: in words.

    Raises `NoAnswer`; `RewardsMissing`, or `ValueError` for another, if the needed signal is missing.
    """
    given = rewards if VOTES[strategy].signal == "reward" else values
    ballots, frequency = _scored(strategy, classes, given, terms, rewards, answers)
    left, ranked = list(ballots.groups), list[AnswerGroup]()
    while left:
        ranked.append(_best(left, strategy, frequency, flawed))
        left.remove(ranked[-1])
    shown = [0.0 if index in flawed else 1.0 for index in range(len(classes))] if frequency else ballots.values
    best, tied, margin = ranked[0], _tied(ranked), None
    decided_by: DecidedBy = "majority" if frequency else VOTES[strategy].decided_by
    if len(ranked) == 1:
        decided_by = "unanimous" if best.count == ballots.total else "only_answer"
    elif best.score is not None and ranked[1].score is not None:
        margin = max(0.0, best.score - ranked[1].score)  # the winner of a tie may have a slightly lower score
    return Election.model_construct(  # every value is of its type
        strategy=strategy,
        answer=best.answer,
        solution_index=representative(best.members, shown),
        decided_by=decided_by,
        tie=len(tied) > 1,
        tied_answers=[group.answer for group in tied] if len(tied) > 1 else [],
        margin=margin,
        candidates=ranked,
    )


def elected(
    strategy: Strategy, classes: Sequence[int | None], values: Values | None, terms: BaseModel = DEFAULTS
) -> int | None:
    """The class that `decide` elects, with values of the signal that the vote takes."""
    ballots, frequency = _scored(strategy, classes, values, terms, values, None)
    return classes[_best(ballots.groups, strategy, frequency).members[0]]


def _scored(
    strategy: Strategy,
    classes: Sequence[int | None],
    given: Values | None,
    terms: BaseModel,
    rewards: Values | None,
    answers: Sequence[str] | None,
) -> tuple[Tally, bool]:
    """The input of a vote, with `given` values of its signal, its groups scored; and whether frequency alone decides.
    As `decide`."""
    vote = VOTES[strategy]
    values = None if given is None or vote.signal == "none" else drop_unanswered(classes, given)
    ballots = tally(classes, terms, values, answers)
    if not ballots.groups:
        raise NoAnswer(len(classes))
    frequency = vote.frequency_decides(ballots)
    if values is None and vote.signal != "none" and len(ballots.groups) > 1 and not frequency:
        why = f"{strategy} needs the candidates' {vote.signal}s to decide this vote"
        if vote.signal == "reward":
            raise RewardsMissing(f"{why}: send step_scores with every solution, or vote by majority")
        raise ValueError(why)
    scores = (by_frequency if frequency else vote.score)(ballots)
    for group, score in zip(ballots.groups, scores, strict=True):
        group.score = score
        if of_members := known(group.members, rewards or ()):
            group.mean_reward, group.max_reward = mean(of_members), max(of_members)
    return ballots, frequency


def _best(
    groups: Sequence[AnswerGroup], strategy: Strategy, frequency: bool, flawed: Collection[int] = ()
) -> AnswerGroup:
    """The preferred of the groups that are tied with the best."""
    by_reward = VOTES[strategy].signal == "reward" and not frequency

    def preference(group: AnswerGroup) -> tuple[float, ...]:
        flaws = sum(index in flawed for index in group.members) if flawed else 0
        return -group.count, -(group.mean_reward or 0.0) if by_reward else 0.0, flaws, group.members[0]

    return min(_tied(groups), key=preference)


def _tied(classes: Sequence[AnswerGroup]) -> list[AnswerGroup]:
    scores = [answer.score for answer in classes if answer.score is not None]
    if not scores:
        return list(classes)
    top = max(scores)
    return [c for c in classes if c.score is not None and top - c.score <= TIE]


def representative(members: Sequence[int], values: Values | None) -> int:
    """The solution to show for an answer: its first member with the highest value, or the first."""
    if values is None:
        return members[0]
    return max(members, key=lambda index: (-1.0 if values[index] is None else values[index], -index))
