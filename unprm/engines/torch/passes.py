"""Passes: what a model runs at once, the tokens of some sequences that are not in the tree yet."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unprm.engines.torch.readers import Reader
from unprm.engines.torch.segments import Segment
from unprm.engines.torch.tree import Node, PrefixTree
from unprm.types import Encoded


@dataclass(frozen=True, slots=True)
class Pending:
    """An item of a batch, and its index there."""

    index: int
    item: Encoded


@dataclass(frozen=True, slots=True)
class PassItem:
    """An item in a pass, `whole` or in part, up to the end of the node `end`."""

    index: int
    item: Encoded
    end: Node
    whole: bool


def admit(tree: PrefixTree, waiting: deque[Pending], limit: int) -> list[PassItem]:
    """Moves items of at most `limit` new tokens from the left of `waiting` to the tree, or a part of the first item."""
    tree.begin()
    shares: list[PassItem] = []
    room = limit
    while waiting:
        first = waiting[0]
        ids = first.item.ids_to_last_position
        missing = tree.missing(ids, first.item.scope)
        if missing > room and shares:
            break
        part = ids[: len(ids) - missing + min(missing, room)]
        end = tree.add(part, first.item.scope)
        if end is None:
            break
        shares.append(PassItem(first.index, first.item, end, whole=len(part) == len(ids)))
        room -= min(missing, room)
        if len(part) < len(ids):
            break
        waiting.popleft()
    assert shares, "the tree has room for any one sequence"
    return shares


class Pass:
    """What is run for items in the tree. `ids` and `depths`: tokens, and their indices in their sequences; `segments`:
    runs of tokens; `computed`: tokens run for each item, shared ones counted for the first."""

    def __init__(self, shares: Sequence[PassItem], reader: Reader) -> None:
        self._reader = reader
        self.ids: list[int] = []
        self.depths: list[int] = []
        self.segments: list[Segment] = []
        self._places: dict[tuple[Node, int], int] = {}  # nodes (at their starts) and tokens run again
        self._reads: dict[tuple[Node, int], tuple[list[int], int]] = {}  # tokens whose values are missing
        self.computed = [self._add(share) for share in shares]

    @cached_property
    def columns(self) -> np.ndarray[Any, Any]:
        """A column for each missing value: where it is read, per lag, and its token's id; (lags + 1, reads)."""
        rows = [[*places, token] for places, token in self._reads.values()]
        return np.array(rows, np.int64).reshape(-1, len(self._reader.sources) + 1).T.copy()

    def begin(self) -> None:
        """Marks the nodes as computed, and the values as read: the next pass, which runs later, may rely on them."""
        for node, _ in self._places:
            node.fresh = False
        for node, index in self._reads:
            node.values[index] = None

    def end(self, values: Sequence[Any]) -> None:
        for (node, index), value in zip(self._reads, values, strict=True):
            while index < node.start:  # the next pass has cut it
                assert node.parent is not None
                node = node.parent
            node.values[index] = value

    def margins(self, share: PassItem) -> list[Any]:
        """The margin of each position of a whole share, at the end of the pass."""
        indices = self._reader.indices(share.item)
        nodes = _along(share.end.path(), indices)
        return self._reader.margins(share.item, [node.values[k] for node, k in zip(nodes, indices, strict=True)])

    def _add(self, share: PassItem) -> int:
        before = len(self.ids)
        path = share.end.path()
        for number, node in enumerate(path):
            if node.fresh and (node, node.start) not in self._places:
                self._run(path[: number + 1], node.start)
        lags = list(self._reader.sources)
        indices = [index for index in self._reader.indices(share.item) if index < share.end.end]
        seen = [_along(path, [index - lag for index in indices]) for lag in lags]
        for index, node, *shown in zip(indices, _along(path, indices), *seen, strict=True):
            if index not in node.values:
                places = [self._place(path, seen_by, index - lag) for seen_by, lag in zip(shown, lags, strict=True)]
                self._reads[node, index] = places, share.item.ids[index]
        return len(self.ids) - before

    def _place(self, path: list[Node], node: Node, index: int) -> int:
        """The position in the pass where a token is run; one that is computed already is run again."""
        if (node, node.start) in self._places and node.fresh:
            return self._places[node, node.start] + index - node.start
        if (node, index) not in self._places:
            self._run(path[: path.index(node) + 1], index, index + 1)
        return self._places[node, index]

    def _run(self, path: Sequence[Node], first: int, last: int | None = None) -> None:
        node = path[-1]
        last = node.end if last is None else last
        self._places[node, first] = len(self.ids)
        self.ids += node.ids[first - node.start : last - node.start]
        self.depths += range(first, last)
        self.segments.append(Segment(np.concatenate([part.slots for part in path])[:last], last - first))


def _along(path: Sequence[Node], indices: Sequence[int]) -> Iterator[Node]:
    """The node of each token; `indices`: the tokens' indices, ascending."""
    nodes = iter(path)
    node = next(nodes)
    for index in indices:
        while index >= node.end:
            node = next(nodes)
        yield node
