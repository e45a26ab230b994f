// Step scores of one solution, and sums as the server takes them.

/** The sum, rounded once, so that it does not depend on the order (Shewchuk, as Python's math.fsum). */
export function fsum(values) {
  const partials = [];
  for (let x of values) {
    let count = 0;
    for (let y of partials) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y;
      const low = y - (high - x);
      if (low !== 0) partials[count++] = low;
      x = high;
    }
    partials.length = count;
    partials.push(x);
  }
  return rounded(partials);
}

function rounded(partials) {
  if (partials.length === 0) return 0;
  let high = partials.pop();
  let low = 0;
  while (partials.length > 0 && low === 0) {
    const x = high;
    const y = partials.pop();
    high = x + y;
    low = y - (high - x);
  }
  // half-way cases go where the rest of the sum points
  const rest = partials.length > 0 ? partials[partials.length - 1] : 0;
  if ((low < 0 && rest < 0) || (low > 0 && rest > 0)) {
    const doubled = low * 2;
    const moved = high + doubled;
    if (moved - high === doubled) high = moved;
  }
  return high;
}

/** The reward of a solution from its step scores, at least one. */
export function reward(scores, aggregate) {
  switch (aggregate) {
    case "last":
      return scores[scores.length - 1];
    case "product":
      return scores.reduce((product, score) => product * score, 1);
    case "mean":
      return fsum(scores) / scores.length;
    default:
      return scores.reduce((least, score) => Math.min(least, score));
  }
}

/** The index of the first score below the threshold; null if there is none. */
export function firstError(scores, threshold) {
  const index = scores.findIndex((score) => score < threshold);
  return index < 0 ? null : index;
}
