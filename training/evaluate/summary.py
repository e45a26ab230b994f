"""One page of a PRM's results on all benchmarks, beside published ones."""

from collections.abc import Iterable, Mapping

from . import prmbench, processbench, vote_results

FIRST_ERRORS = tuple(f"F1 {name}" for name in (*processbench.SUBSETS, "average"))
COLUMNS = (*FIRST_ERRORS, *prmbench.GROUPS, "PRMScore")


def markdown(
    model: str, first_errors: processbench.Result, steps: prmbench.Result, votes: vote_results.Results | None
) -> str:
    """The page: ProcessBench and PRMBench in one table, in percent, and the votes if candidates were measured."""
    rows = [[model, f"threshold {first_errors.threshold:g}", *_cells(_here(first_errors, steps))]]
    for name in dict.fromkeys([*processbench.PUBLISHED, *prmbench.PUBLISHED]):
        rows.append([name, "published", *_cells(_published(name))])
    note = "First wrong steps of ProcessBench, steps of PRMBench by group and overall, in %:"
    tables = [f"{note}\n\n{vote_results.in_markdown(['model', 'figures', *COLUMNS], rows)}"]
    return "\n".join(tables if votes is None else [*tables, vote_results.markdown(votes)])


def _here(first_errors: processbench.Result, steps: prmbench.Result) -> Mapping[str, float]:
    """In percent by column; the average only of all subsets, and the overall score only of all categories."""
    figures = {f"F1 {name}": subset.f1 for name, subset in first_errors.subsets.items()} | dict(steps.groups)
    if first_errors.subsets.keys() >= set(processbench.SUBSETS):
        figures["F1 average"] = first_errors.average_f1
    if steps.categories.keys() >= set(prmbench.CATEGORIES):
        figures["PRMScore"] = steps.overall.mean
    return {column: 100 * value for column, value in figures.items()}


def _published(model: str) -> Mapping[str, float]:
    figures: dict[str, float] = {}
    if f1 := processbench.PUBLISHED.get(model):
        figures |= zip(FIRST_ERRORS, f1, strict=True)
    if scores := prmbench.PUBLISHED.get(model):
        figures |= zip((*prmbench.GROUPS, "PRMScore"), (*scores[-len(prmbench.GROUPS) :], scores[0]), strict=True)
    return figures


def _cells(figures: Mapping[str, float]) -> Iterable[str]:
    return (f"{figures[column]:.1f}" if column in figures else "–" for column in COLUMNS)
