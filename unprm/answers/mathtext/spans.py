"""Sets of real numbers as spans: intervals, rays and points, merged where they touch."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key

from unprm.answers.mathtext.tree import Call, Group, Node, Symbol

INFINITE = Symbol("\\infty")
MINUS_INFINITE = Call("neg", (INFINITE,))

Compare = Callable[[Node, Node], int]
"""-1, 0 or 1 if the first of two values is smaller, equal or greater; it may raise."""


@dataclass(frozen=True, slots=True)
class Span:
    """All numbers between two ends, each of which is included or not."""

    low: Node
    high: Node
    from_low: bool = False
    to_high: bool = False


def ray(bound: Node, *, upwards: bool, closed: bool) -> Span:
    """All numbers above or below a bound."""
    return Span(bound, INFINITE, closed, False) if upwards else Span(MINUS_INFINITE, bound, False, closed)


def spans_of(node: Node) -> list[Span] | None:
    """The spans that a node denotes: an interval or a set of numbers; None for any other node."""
    match node:
        case Group("(" | "[" as opening, (low, high), ")" | "]" as closing):
            return [Span(low, high, opening == "[", closing == "]")]
        case Group("\\{", items, _):
            return [Span(item, item, True, True) for item in items]
    return None


def merged(spans: Iterable[Span], compare: Compare) -> list[Span]:
    """The same set as ordered spans that don't touch; empty ones are left out. Raises what `compare` raises."""

    def ordered(left: Node, right: Node) -> int:
        return _infinity(left) - _infinity(right) if _infinity(left) or _infinity(right) else compare(left, right)

    def by_start(left: Span, right: Span) -> int:
        return ordered(left.low, right.low) or right.from_low - left.from_low

    done: list[Span] = []
    for span in sorted((span for span in spans if not _is_empty(span, ordered)), key=cmp_to_key(by_start)):
        if done and _touch(done[-1], span, ordered):
            done[-1] = _joined(done[-1], span, ordered)
        else:
            done.append(span)
    return done


def _infinity(node: Node) -> int:
    return {INFINITE: 1, MINUS_INFINITE: -1}.get(node, 0)


def _is_empty(span: Span, ordered: Compare) -> bool:
    order = ordered(span.low, span.high)
    return order > 0 or (order == 0 and not (span.from_low and span.to_high))


def _touch(first: Span, second: Span, ordered: Compare) -> bool:
    order = ordered(first.high, second.low)
    return order > 0 or (order == 0 and (first.to_high or second.from_low))


def _joined(first: Span, second: Span, ordered: Compare) -> Span:
    order = ordered(first.high, second.high)
    last = first if order > 0 or (order == 0 and first.to_high) else second
    return Span(first.low, last.high, first.from_low, last.to_high)


def outside(spans: Iterable[Span]) -> Iterator[Span]:
    """All real numbers that are in none of these spans, which are in ascending order."""
    last = Span(INFINITE, MINUS_INFINITE, to_high=True)
    for span in [*spans, Span(INFINITE, INFINITE, from_low=True)]:
        yield Span(last.high, span.low, not last.to_high, not span.from_low)
        last = span
