"""Sequences as a tree: every distinct prefix of tokens is there once, so a causal model has to run it once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

Ids = Sequence[int]


@dataclass(slots=True)
class Tree:
    """Tokens in the order in which they came, each after the one before it in its sequence.

    `depths`: a token's place in its sequence. `paths`: the tokens of each sequence that was added, as indices.
    """

    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)
    _shared: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def computed(self) -> list[int]:
        """Tokens that each sequence brought: what it shares with those before it is theirs."""
        return [len(path) - shared for path, shared in zip(self.paths, self._shared, strict=True)]

    def known(self, ids: Ids) -> list[int]:
        """The longest prefix of a sequence that is in the tree, as indices."""
        path: list[int] = []
        for token in ids:
            found = self._children.get((path[-1] if path else -1, token))
            if found is None:
                break
            path.append(found)
        return path

    def add(self, ids: Ids) -> None:
        """Adds a sequence."""
        path = self.known(ids)
        self._shared.append(len(path))
        for depth in range(len(path), len(ids)):
            self._children[path[-1] if path else -1, ids[depth]] = len(self.ids)
            path.append(len(self.ids))
            self.ids.append(ids[depth])
            self.depths.append(depth)
        self.paths.append(path)

    def visible(self) -> torch.Tensor:
        """Which tokens each token sees, those before it in its sequence and itself: (tokens, tokens), bool."""
        mask = torch.zeros(len(self), len(self), dtype=torch.bool)
        for path, shared in zip(self.paths, self._shared, strict=True):
            if shared < len(path):  # what a sequence brings lies together
                start, end = path[shared], path[-1] + 1
                mask[start:end, path[:shared]] = True
                mask[start:end, start:end] = torch.ones(end - start, end - start, dtype=torch.bool).tril()
        return mask


def forest(sequences: Mapping[int, Ids], most: int) -> Iterator[tuple[list[int], Tree]]:
    """The sequences, by their numbers, in trees of at most `most` tokens; a longer one has a tree of its own. What
    begins alike stands together."""
    indices: list[int] = []
    tree = Tree()
    for index in sorted(sequences, key=lambda own: tuple(sequences[own])):
        ids = sequences[index]
        if indices and len(tree) + len(ids) - len(tree.known(ids)) > most:
            yield indices, tree
            indices, tree = [], Tree()
        tree.add(ids)
        indices.append(index)
    if indices:
        yield indices, tree
