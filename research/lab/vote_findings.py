"""The lab's findings about votes, with the PRMs of one data set and base."""

from collections.abc import Mapping

import numpy as np

from training.evaluate.bootstrap import FEWEST, Estimate, Numbers
from training.evaluate.metrics import percent

from ..comparisons import ACCURACY_MARGIN, Comparison, Outcome, compare, grouped, note, sentences
from ..report.blocks import listed
from ..report.found import Finding
from . import elections
from .elections import Seeds

Right = Mapping[int, Mapping[str, Numbers]]
"""Outcomes by N and vote, each (seeds, questions)."""
PAIRS = tuple((vote, other) for vote in ("hmr", "wrf", "weighted") for other in ("majority", "prm"))


def every(judged: Seeds) -> list[Finding]:
    """All findings about votes; `judged`: the judged candidates of every question, once per training seed."""
    right = elections.votes_taken(judged)
    return [votes(right), frequencies(judged, right), alphas(judged), ties(judged), another_vote(judged, right)]


def votes(right: Right) -> Finding:
    """Whether HMR, WRF and the sum of rewards beat majority and PRM, and at which N: one family per pair of votes."""
    sizes = [size for size in right if size > 1]  # at N = 1 all votes elect the same candidate
    families = {
        (a, b): compare({size: Estimate.mean(right[size][a] - right[size][b]) for size in sizes}, ACCURACY_MARGIN)
        for a, b in PAIRS
    }
    last = max(right)
    lines = [f"{a} against {b}: {_by_size(family)}." for (a, b), family in families.items()]
    lines.append(f"At N = {last}: {sentences({pair: family[last] for pair, family in families.items()})}.")
    return Finding(
        question="Do HMR, WRF and the sum of rewards beat majority and PRM?",
        answer="\n".join([*lines, note(len(sizes), ACCURACY_MARGIN, _seeds(right))]),
        columns=["N", *(f"{name} in % (95 % interval)" for name in elections.VOTES), *(f"{a} − {b}" for a, b in PAIRS)],
        rows=[
            [
                size,
                *(Estimate.mean(outcomes).share.in_percent for outcomes in by_vote.values()),
                *(family[size].figures if size in family else "" for family in families.values()),
            ]
            for size, by_vote in right.items()
        ],
    )


def _by_size(family: Mapping[int, Comparison]) -> str:
    """The outcomes as text: `worse at N = 32 and 64, as good at N = 2, …`."""
    words: dict[Outcome, str] = {
        "better": "better", "worse": "worse", "as good": "as good", "open": "not told apart"
    }  # fmt: skip
    parts = []
    for outcome, said in words.items():
        sizes = [str(size) for size, comparison in family.items() if comparison.outcome == outcome]
        if sizes:
            parts.append(f"{said} at N = {listed(sizes)}")
    return ", ".join(parts)


def frequencies(judged: Seeds, right: Right) -> Finding:
    """Where the votes differ, by the share of a question's candidates that are right."""
    size = max(right)
    bands = {band: numbers for band, numbers in elections.bands(judged[0]).items() if numbers}
    compared = {band: numbers for band, numbers in bands.items() if len(numbers) >= FEWEST}
    family = compare(
        {
            (band, vote): Estimate.mean((outcomes - right[size]["majority"])[:, numbers])
            for band, numbers in compared.items()
            for vote, outcomes in right[size].items()
            if vote != "majority"
        },
        ACCURACY_MARGIN,
    )
    lines = [f"Against majority at N = {size}, by the share of the candidates that are right:"]
    for band, numbers in compared.items():
        in_band = {vote: comparison for (where, vote), comparison in family.items() if where == band}
        lines.append(f"{band}, {len(numbers)} questions: {grouped(in_band)}.")
    if len(compared) < len(bands):
        lines.append(f"Where there are fewer than {FEWEST} questions, votes are not compared.")
    return Finding(
        question="Where do the votes differ?",
        answer="\n".join([*lines, note(len(family), ACCURACY_MARGIN, _seeds(right))]),
        columns=["candidates that are right", "questions",
                 *(f"{name} (%)" for name in elections.VOTES),
                 *(f"{name} − majority" for name in elections.VOTES if name != "majority")],
        rows=[
            [band, len(numbers),
             *(f"{100 * outcomes[:, numbers].mean():.1f}" for outcomes in right[size].values()),
             *(family[band, name].figures if band in compared else ""
               for name in elections.VOTES if name != "majority")]
            for band, numbers in bands.items()
        ],
    )  # fmt: skip


def alphas(judged: Seeds) -> Finding:
    """Which α is best for WRF: each other value against the paper's."""
    sizes = [size for size in elections.sizes(judged) if size >= 4]
    paper, *others = elections.ALPHAS
    right = {
        alpha: {size: elections.outcomes(judged, size, elections.wrf(alpha)) for size in sizes}
        for alpha in sorted(elections.ALPHAS)
    }
    means = {alpha: np.mean(list(by_size.values()), axis=0) for alpha, by_size in right.items()}
    family = compare({alpha: Estimate.mean(means[alpha] - means[paper]) for alpha in sorted(others)}, ACCURACY_MARGIN)
    against = grouped({f"{alpha:g}": comparison for alpha, comparison in family.items()})
    return Finding(
        question="Which α serves WRF best?",
        answer=f"On average over N = {listed(map(str, sizes))}, against the paper's {paper:g} with "
        f"{percent(float(means[paper].mean()))}: {against}.\n"
        f"{note(len(family), ACCURACY_MARGIN, len(judged))}",
        columns=["α", *(f"N = {size} (%)" for size in sizes), "on average in % (95 % interval)",
                 f"against {paper:g}, points"],
        rows=[
            [alpha, *(f"{100 * outcomes.mean():.1f}" for outcomes in by_size.values()),
             Estimate.mean(means[alpha]).share.in_percent, family[alpha].figures if alpha in family else ""]
            for alpha, by_size in right.items()
        ],
    )  # fmt: skip


def ties(judged: Seeds) -> Finding:
    """Which tie-break is best for WRF, at the N with the most ties."""
    by_size = {size: elections.ties(judged, size) for size in elections.sizes(judged) if size > 1}
    most = max(by_size, key=lambda size: float(by_size[size]["tied"].mean()))
    ours, *others = elections.TIE_BREAKS
    right = by_size[most]
    family = compare(
        {(f"breaking ties by {name}", f"by {ours}"): Estimate.mean(right[name] - right[ours]) for name in others},
        ACCURACY_MARGIN,
    )
    tied = Estimate.mean(right["tied"])
    return Finding(
        question="Which tie-break serves WRF best?",
        answer=f"Most votes are tied at N = {most}: {tied.share.in_percent} in %, with the 95 % interval. "
        f"There {sentences(family)}.\n"
        f"{note(len(family), ACCURACY_MARGIN, len(judged))}"
        if tied.value
        else "No vote is tied.",
        columns=["N", "votes tied in % (95 % interval)",
                 *(f"right, ties by {name}, in % (95 % interval)" for name in elections.TIE_BREAKS)],
        rows=[
            [size, *(Estimate.mean(outcomes[name]).share.in_percent for name in ("tied", *elections.TIE_BREAKS))]
            for size, outcomes in by_size.items()
        ],
    )  # fmt: skip


def another_vote(judged: Seeds, right: Right) -> Finding:
    """Whether another vote beats HMR and WRF: its prior is chosen on half of the questions and tested on the others."""
    chosen_on, tried_on = elections.halves(judged)
    prior = elections.best(chosen_on, {prior: elections.log_odds(prior) for prior in elections.PRIORS})
    taken = {
        size: {**by_vote, "log-odds": elections.outcomes(judged, size, elections.log_odds(prior))}
        for size, by_vote in right.items()
    }
    tried = {size: {name: outcomes[:, 1::2] for name, outcomes in by_vote.items()} for size, by_vote in taken.items()}
    last = max(tried)
    pairs = [(name, other) for name in ("log-odds", "weighted") for other in ("hmr", "wrf")]
    family = compare({(a, b): Estimate.mean(tried[last][a] - tried[last][b]) for a, b in pairs}, ACCURACY_MARGIN)
    return Finding(
        question="Is there a vote that beats HMR and WRF?",
        answer=f"Log-odds: every candidate adds {prior:g} plus the log-odds of its reward to its class; {prior:g} was "
        f"best on {len(chosen_on[0])} of the questions. On the other {len(tried_on[0])}, at N = {last}: "
        f"{sentences(family)}.\n{note(len(family), ACCURACY_MARGIN, len(judged))}",
        columns=["N", *(f"{name} in % (95 % interval)" for name in tried[last])],
        rows=[
            [size, *(Estimate.mean(outcomes).share.in_percent for outcomes in by_vote.values())]
            for size, by_vote in tried.items()
        ],
    )


def _seeds(right: Right) -> int:
    return len(next(iter(right[max(right)].values())))
