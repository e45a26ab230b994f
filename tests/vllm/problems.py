"""Problems that the embedded model knows."""

PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
HARD_PROBLEM = (
    "Moor Farm stores 166 eggs. Moor Farm harvests 66 eggs. Moor Farm gets 6 crates with 39 eggs in each crate. "
    "How many eggs does Moor Farm have in the end?"
)
