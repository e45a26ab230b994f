"""The prefix cache: a tree with every distinct prefix of tokens stored once, in each scope apart. A node is a run of
tokens within which no two sequences diverge. The least recently used nodes are evicted first, children before
parents."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unprm.types import common_prefix

Slots = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(eq=False, slots=True)
class Node:
    """Tokens `ids`, the first at index `start`, whose keys and values are in `slots`. `values`: read from the model, by
    index; `fresh`: not computed yet; `used`: the number of the last pass."""

    ids: tuple[int, ...]
    start: int
    slots: Slots
    parent: "Node | None"
    fresh: bool = True
    used: int = 0
    values: dict[int, Any] = field(default_factory=dict)
    children: dict[int, "Node"] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    def path(self) -> list["Node"]:
        """The nodes from the beginning of the sequence to this one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class PrefixTree:
    """A tree with slots for `capacity` tokens. Nothing that was added or reused since the last `begin` is evicted."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def __len__(self) -> int:
        return self.capacity - self._free_slots

    def clear(self) -> None:
        self._free = np.arange(self.capacity)[::-1].copy()
        self._free_slots = self.capacity
        self._roots: dict[str, Node] = {}
        self._nodes: OrderedDict[Node, None] = OrderedDict()  # most recently used last, parents after children
        self._pass = 0

    def begin(self) -> None:
        self._pass += 1

    def missing(self, ids: Sequence[int], scope: str = "") -> int:
        return len(ids) - sum(shared for _, shared in self._known(tuple(ids), scope))

    def add(self, ids: Sequence[int], scope: str = "") -> Node | None:
        """Adds a sequence, and returns the node that ends it; None if no room can be made in this pass."""
        sequence = tuple(ids)
        path = [self._roots.get(scope) or Node((), 0, np.empty(0, np.int64), None)]
        for child, shared in list(self._known(sequence, scope)):  # the whole path, before a node is cut
            path.append(child if shared == len(child.ids) else self._split(child, shared))
        self._use(path[1:])
        last = path[-1]
        if last.end < len(sequence):
            slots = self._take(len(sequence) - last.end)
            if slots is None:
                return None
            new = Node(sequence[last.end :], last.end, slots, last)
            self._roots.setdefault(scope, path[0])
            last.children[new.ids[0]] = new
            self._use([*path[1:], new])
            last = new
        return last

    def trim(self, tokens: int) -> None:
        """Evicts nodes until at most `tokens` tokens are left."""
        while len(self) > tokens:
            self._drop_oldest()

    def _known(self, ids: tuple[int, ...], scope: str) -> Iterator[tuple[Node, int]]:
        """The nodes along a sequence, each with the number of tokens shared: the last may be shared only in part."""
        node, depth = self._roots.get(scope), 0
        while node is not None and depth < len(ids) and (child := node.children.get(ids[depth])) is not None:
            shared = common_prefix(child.ids, ids[depth : depth + len(child.ids)])
            yield child, shared
            if shared < len(child.ids):
                return
            node, depth = child, depth + shared

    def _split(self, node: Node, length: int) -> Node:
        """Cuts a node in two; returns the first part, the node itself becomes the second."""
        assert node.parent is not None
        cut = node.start + length
        first = Node(node.ids[:length], node.start, node.slots[:length], node.parent, node.fresh)
        first.values = {index: value for index, value in node.values.items() if index < cut}
        first.children[node.ids[length]] = node
        node.parent.children[first.ids[0]] = first
        node.values = {index: value for index, value in node.values.items() if index >= cut}
        node.ids, node.start, node.slots, node.parent = node.ids[length:], cut, node.slots[length:], first
        return first

    def _use(self, path: Sequence[Node]) -> None:
        for node in reversed(path):
            node.used = self._pass
            self._nodes[node] = None
            self._nodes.move_to_end(node)

    def _take(self, tokens: int) -> Slots | None:
        while self._free_slots < tokens:
            if not self._nodes or next(iter(self._nodes)).used == self._pass:
                return None
            self._drop_oldest()
        self._free_slots -= tokens
        return self._free[self._free_slots : self._free_slots + tokens].copy()

    def _drop_oldest(self) -> None:
        node, _ = self._nodes.popitem(last=False)
        assert node.parent is not None
        assert not node.children
        del node.parent.children[node.ids[0]]
        self._free[self._free_slots : self._free_slots + len(node.ids)] = node.slots
        self._free_slots += len(node.ids)
