// Problems with candidates to begin with; the page opens with the first.

const moor = (sum, product, total, last = `${sum} + ${product}`) =>
  `Step 1: 166 + 66 = ${sum}.\nStep 2: 6 * 39 = ${product}.\nStep 3: ${last} = ${total}. The answer is \\boxed{${total}}.`;

const given = (step_scores, ...steps) => ({ steps, step_scores });

export const EXAMPLES = [
  {
    name: "A close vote",
    problem:
      "Moor Farm stores 166 eggs. Moor Farm harvests 66 eggs. Moor Farm gets 6 crates with 39 eggs in each crate. " +
      "How many eggs does Moor Farm have in the end?",
    solutions: [
      moor(222, 234, 456),
      moor(232, 234, 466),
      moor(132, 234, 366),
      moor(232, 224, 456),
      moor(232, 234, 466, "234 + 232"),
    ],
  },
  {
    name: "A slip",
    problem: "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?",
    solutions: [
      "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}.",
      "Step 1: 4 * 15 = 50.\nStep 2: 23 + 50 = 73. The answer is \\boxed{73}.",
    ],
  },
  {
    name: "Own scores",
    problem:
      "Leo has 48 cards. Leo splits the cards into 3 equal piles and keeps one pile. Leo buys 5 more cards. " +
      "How many cards does Leo have now?",
    solutions: [
      given([0.31, 0.42], "Three go: $48 - 3 = 45$.", "Five come: $45 + 5 = 50$. The answer is $\\boxed{50}$."),
      given([0.97, 0.93], "One pile is $$\\frac{48}{3} = 16 .$$", "So $16 + 5 = 21$. The answer is $\\boxed{21}$."),
      given([0.31, 0.55], "$3$ of $48$ are away, so $45$ stay.", "With $5$ more, the answer is $\\boxed{50}$."),
      given([0.9, 0.88], "In thirds: \\(\\frac{48}{3} + 5 = \\frac{48 + 15}{3}\\).", "So \\boxed{\\frac{63}{3}}."),
      given([0.12, 0.35], "First $48 + 5 = 53$.", "Then $53 - 3 = 50$. Hence the answer is $\\boxed{50}$."),
      given([0.24, 0.2], "There are $3 \\cdot 48 = 144$ cards.", "With $5$ more, the answer is $\\boxed{149}$."),
    ],
  },
];
