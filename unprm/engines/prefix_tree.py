"""What a causal model has computed, as a tree: every distinct prefix of tokens is there once.

A node is a run of tokens in which no two sequences part. Each token has a slot, where its keys and values are kept.
Nodes that were not used for longest are let go first, and never one before those that go on from it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

Slots = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(eq=False, slots=True)
class Node:
    """Tokens `ids` of sequences, the first of them at index `start`.

    `values`: what was read off the model at a token, by its index. `fresh`: not computed yet. `used`: the number of
    the pass that used it last.
    """

    ids: tuple[int, ...]
    start: int
    slots: Slots
    parent: "Node | None"
    fresh: bool = True
    used: int = 0
    values: dict[int, float] = field(default_factory=dict)
    children: dict[int, "Node"] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Index after its last token."""
        return self.start + len(self.ids)

    def path(self) -> list["Node"]:
        """From the beginning of the sequence to this node."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class PrefixTree:
    """A tree with slots for `capacity` tokens. A pass is what is added between two calls of `begin`: none of it is let
    go before the next."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def __len__(self) -> int:
        """Tokens in the tree."""
        return self.capacity - self._free_slots

    def clear(self) -> None:
        """Lets everything go."""
        self._free = np.arange(self.capacity)[::-1].copy()
        self._free_slots = self.capacity
        self._root = Node((), 0, np.empty(0, np.int64), None)
        self._nodes: OrderedDict[Node, None] = OrderedDict()  # used last at the end, a parent after its children
        self._pass = 0

    def begin(self) -> None:
        """Begins a pass."""
        self._pass += 1

    def missing(self, ids: Sequence[int]) -> int:
        """Tokens of a sequence that are not in the tree."""
        return len(ids) - sum(shared for _, shared in self._known(tuple(ids)))

    def add(self, ids: Sequence[int]) -> Node | None:
        """The node that ends a sequence, of one token or more, in the tree; None if no room can be made for it in this
        pass."""
        sequence = tuple(ids)
        path = [self._root]
        for child, shared in list(self._known(sequence)):  # whole before a node is cut
            path.append(child if shared == len(child.ids) else self._split(child, shared))
        self._use(path[1:])
        last = path[-1]
        if last.end < len(sequence):
            slots = self._take(len(sequence) - last.end)
            if slots is None:
                return None
            new = Node(sequence[last.end :], last.end, slots, last)
            last.children[new.ids[0]] = new
            self._use([*path[1:], new])
            last = new
        return last

    def trim(self, tokens: int) -> None:
        """Lets nodes go until at most so many tokens are left."""
        while len(self) > tokens:
            self._drop_oldest()

    def _known(self, ids: tuple[int, ...]) -> Iterator[tuple[Node, int]]:
        """The nodes that a sequence goes through, each with the tokens that they share: all of it but at the last."""
        node, depth = self._root, 0
        while depth < len(ids) and (child := node.children.get(ids[depth])) is not None:
            shared = _common(child.ids, ids[depth : depth + len(child.ids)])
            yield child, shared
            if shared < len(child.ids):
                return
            node, depth = child, depth + shared

    def _split(self, node: Node, length: int) -> Node:
        """Cuts a node in two; returns the first, the node itself becomes the second."""
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


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Tokens that two runs begin with alike; most are alike as far as one of them goes."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    return next(k for k in range(length) if first[k] != second[k])
