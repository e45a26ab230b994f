// The five votes, as the server takes them (unprm/votes.py), so that another weight needs no request.
import { fsum } from "./scores.js";

export const STRATEGIES = ["majority", "prm", "hmr", "wrf", "weighted"];

/** Scores that differ by no more are tied. */
const TIE = 1e-9;

/**
 * Elects a class. `classes[i]`: the class of candidate i, null if it has no answer: it can't win, but counts.
 * `rewards[i]` in [0, 1]. At least one class must be there.
 */
export function decide(strategy, classes, rewards, alpha = 0.5) {
  const groups = grouped(classes, rewards);
  const frequent = strategy === "hmr" && hasMajority(groups, classes.length);
  const ranked = rank(SCORES[frequent ? "majority" : strategy](groups, alpha));
  const tied = tiedOf(ranked).length;
  const [winner, second] = ranked;
  return {
    strategy,
    decidedBy: decidedBy(strategy, groups, frequent),
    candidates: ranked,
    solutionIndex: representative(winner, rewards),
    tied: tied > 1 ? tied : 0,
    margin: second === undefined ? null : Math.max(0, winner.score - second.score),
  };
}

function grouped(classes, rewards) {
  const members = new Map();
  classes.forEach((name, index) => {
    if (name === null) return;
    if (!members.has(name)) members.set(name, []);
    members.get(name).push(index);
  });
  return [...members.values()].map((own) => {
    const values = own.map((index) => rewards[index]);
    const total = fsum(values);
    return { members: own, count: own.length, total, mean: total / own.length, best: Math.max(...values) };
  });
}

function hasMajority(groups, total) {
  return 2 * Math.max(...groups.map((group) => group.count)) >= total;
}

function decidedBy(strategy, groups, frequent) {
  if (groups.length === 1) return "unanimous";
  if (strategy === "majority" || frequent) return "majority";
  return strategy === "prm" || strategy === "hmr" ? "reward" : "combined";
}

const plain = (score) => (groups) =>
  groups.map((group) => ({ ...group, normalizedReward: null, normalizedFrequency: null, score: score(group) }));

const SCORES = {
  majority: plain((group) => group.count),
  prm: plain((group) => group.best),
  hmr: plain((group) => group.best),
  weighted: plain((group) => group.total),
  wrf: (groups, alpha) => {
    const frequencies = minMax(groups.map((group) => group.count));
    const means = minMax(groups.map((group) => group.mean));
    return groups.map((group, k) => ({
      ...group,
      normalizedReward: means[k],
      normalizedFrequency: frequencies[k],
      score: alpha * means[k] + (1 - alpha) * frequencies[k],
    }));
  },
};

function minMax(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return values.map((value) => (high > low ? (value - low) / (high - low) : 1));
}

// best first: again and again the preferred one among those tied with the best that is left
function rank(candidates) {
  const left = [...candidates];
  const ranked = [];
  while (left.length > 0) {
    const best = tiedOf(left).reduce((first, other) => (precedes(other, first) ? other : first));
    left.splice(left.indexOf(best), 1);
    ranked.push(best);
  }
  return ranked;
}

function tiedOf(candidates) {
  const top = Math.max(...candidates.map((candidate) => candidate.score));
  return candidates.filter((candidate) => top - candidate.score <= TIE);
}

// the higher frequency, then the higher mean reward, then the first to appear
function precedes(one, other) {
  if (one.count !== other.count) return one.count > other.count;
  if (one.mean !== other.mean) return one.mean > other.mean;
  return one.members[0] < other.members[0];
}

// the member with the highest reward; of equal ones the first
function representative(winner, rewards) {
  return winner.members.reduce((best, index) => (rewards[index] > rewards[best] ? index : best));
}

/** Which class WRF elects at which weight: stretches `{from, to, members}` of [0, 1], to a hundredth. */
export function sweep(classes, rewards) {
  const groups = grouped(classes, rewards);
  const stretches = [];
  for (let k = 0; k <= 100; k += 1) {
    const tied = tiedOf(SCORES.wrf(groups, k / 100));
    const { members } = tied.reduce((first, other) => (precedes(other, first) ? other : first));
    const last = stretches[stretches.length - 1];
    if (last?.members === members) last.to = k / 100;
    else stretches.push({ from: k / 100, to: k / 100, members });
  }
  return stretches;
}
