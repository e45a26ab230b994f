// Problems with candidates to begin with.

const MOOR = [
  ["222", "456"],
  ["232", "466"],
  ["132", "366"],
  ["222", "456"],
  ["232", "466"],
].map(
  ([sum, total]) =>
    `Step 1: 166 + 66 = ${sum}.\nStep 2: 6 * 39 = 234.\nStep 3: ${sum} + 234 = ${total}. The answer is \\boxed{${total}}.`,
);

const integral = (id, steps, step_scores) => ({ id, steps, step_scores });

const FORGOTTEN = "The antiderivative of $x$ is $x^2$, so $\\int_0^1 x\\,dx = \\left[x^2\\right]_0^1$.";
const ANTIDERIVATIVE = "By the power rule, $$\\int_0^1 x\\,dx = \\left[\\frac{x^2}{2}\\right]_0^1 .$$";

export const EXAMPLES = [
  {
    name: "A slip",
    problem: "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?",
    solutions: [
      "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}.",
      "Step 1: 4 * 15 = 50.\nStep 2: 23 + 50 = 73. The answer is \\boxed{73}.",
    ],
  },
  {
    name: "A close vote",
    problem:
      "Moor Farm stores 166 eggs. Moor Farm harvests 66 eggs. Moor Farm gets 6 crates with 39 eggs in each crate. " +
      "How many eggs does Moor Farm have in the end?",
    solutions: MOOR,
  },
  {
    name: "LaTeX",
    problem: "Compute the integral $\\int_0^1 x\\,dx$.",
    solutions: [
      integral("a", [FORGOTTEN, "At the ends that is $1 - 0 = 1$. The answer is $\\boxed{1}$."], [0.31, 0.42]),
      integral("b", [ANTIDERIVATIVE, "At the ends: $\\frac{1}{2} - 0$. The answer is $\\boxed{\\frac{1}{2}}$."], [0.97, 0.93]),
      integral("c", [FORGOTTEN, "The value at $1$ is $1$, at $0$ it is $0$. The answer is $\\boxed{1}$."], [0.31, 0.55]),
      integral("d", ["The area is a triangle of base $1$ and height $1$: \\(\\tfrac12 \\cdot 1 \\cdot 1\\).", "So \\boxed{0.5}."], [0.9, 0.88]),
      integral("e", ["I take the derivative: $\\frac{d}{dx}\\,x = 1$.", "Hence the answer is $\\boxed{1}$."], [0.12, 0.35]),
      integral("f", ["By symmetry it is twice the value at $x = 1$.", "The answer is $\\boxed{2}$."], [0.24, 0.2]),
    ],
  },
];
