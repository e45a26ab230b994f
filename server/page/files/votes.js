// The five votes, as the server takes them (unprm/votes/decide.py), so that another weight needs no request.
import { fsum } from "./scores.js";

export const STRATEGIES = ["majority", "prm", "hmr", "wrf", "weighted"];
export const NORMALIZATIONS = ["minmax", "share"];

/** Scores that differ by no more are tied. */
const TIE = 1e-9;

/**
 * Elects a class. `classes[i]`: the class of candidate i, null if it has no answer: it can't win, but counts in N.
 * `rewards[i]` in [0, 1], null where candidate i could not be scored: its class's reward is that of the other members,
 * 0 if there is none. `alpha` in [0, 1] and `normalization` ("minmax", "share") are WRF's. At least one class must be
 * there.
 */
export function decide(strategy, classes, rewards, alpha = 0.5, normalization = "minmax") {
  const groups = grouped(classes, rewards);
  const frequent = decidedByFrequency(strategy, groups, classes.length);
  const scored = SCORES[frequent ? "majority" : strategy](groups, { total: classes.length, alpha, normalization });
  const ranked = rank(scored, frequent ? isEarlier : isPreferred);
  const tied = tiedOf(ranked).length;
  const [winner, second] = ranked;
  return {
    strategy,
    decidedBy: decidedBy(strategy, groups, frequent),
    candidates: ranked,
    solutionIndex: frequent ? winner.members[0] : representative(winner, rewards),
    tied: tied > 1 ? tied : 0,
    margin: second === undefined ? null : Math.max(0, winner.score - second.score),
  };
}

// `mean` and `best` are of the scored members, null without one
function grouped(classes, rewards) {
  const members = new Map();
  classes.forEach((name, index) => {
    if (name === null) return;
    if (!members.has(name)) members.set(name, []);
    members.get(name).push(index);
  });
  return [...members.values()].map((own) => {
    const values = own.map((index) => rewards[index]).filter((value) => value !== null);
    const total = fsum(values);
    const [mean, best] = values.length > 0 ? [total / values.length, Math.max(...values)] : [null, null];
    return { members: own, count: own.length, total, mean, best };
  });
}

// for hmr: one class, and no other, has half of all candidates or more
function decidedByFrequency(strategy, groups, total) {
  const [first, second = 0] = groups.map((group) => group.count).sort((one, other) => other - one);
  return strategy === "majority" || (strategy === "hmr" && 2 * first >= total && first > second);
}

function decidedBy(strategy, groups, frequent) {
  if (groups.length === 1) return "unanimous";
  if (frequent) return "majority";
  return strategy === "prm" || strategy === "hmr" ? "reward" : "combined";
}

const plain = (score) => (groups) =>
  groups.map((group) => ({ ...group, normalizedReward: null, normalizedFrequency: null, score: score(group) }));

const SCORES = {
  majority: plain((group) => group.count),
  prm: plain((group) => group.best ?? 0),
  hmr: plain((group) => group.best ?? 0),
  weighted: plain((group) => group.total),
  wrf: (groups, { total, alpha, normalization }) => {
    const means = groups.map((group) => group.mean ?? 0);
    const shares = groups.map((group) => group.count / total);
    const byShare = normalization === "share";
    const normalizedRewards = byShare ? means : minMax(means);
    const frequencies = byShare ? shares : minMax(groups.map((group) => group.count));
    return groups.map((group, k) => ({
      ...group,
      normalizedReward: normalizedRewards[k],
      normalizedFrequency: frequencies[k],
      score: alpha * normalizedRewards[k] + (1 - alpha) * frequencies[k],
    }));
  },
};

function minMax(values) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return values.map((value) => (high > low ? (value - low) / (high - low) : 1));
}

// best first: again and again the one that precedes the others tied with the best that is left
function rank(candidates, precedes) {
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
function isPreferred(one, other) {
  if (one.count !== other.count) return one.count > other.count;
  const [mean, against] = [one.mean ?? 0, other.mean ?? 0];
  return mean === against ? isEarlier(one, other) : mean > against;
}

function isEarlier(one, other) {
  return one.members[0] < other.members[0];
}

// the member with the highest reward, the first of them; the first member where none has one
function representative(winner, rewards) {
  const reward = (index) => rewards[index] ?? -1;
  return winner.members.reduce((best, index) => (reward(index) > reward(best) ? index : best));
}

/** Which class WRF elects at which weight: stretches `{from, to, members}` of [0, 1], to a hundredth. */
export function sweep(classes, rewards, normalization = "minmax") {
  const groups = grouped(classes, rewards);
  const stretches = [];
  for (let k = 0; k <= 100; k += 1) {
    const tied = tiedOf(SCORES.wrf(groups, { total: classes.length, alpha: k / 100, normalization }));
    const { members } = tied.reduce((first, other) => (isPreferred(other, first) ? other : first));
    const last = stretches[stretches.length - 1];
    if (last?.members === members) last.to = k / 100;
    else stretches.push({ from: k / 100, to: k / 100, members });
  }
  return stretches;
}
