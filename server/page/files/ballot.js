// The votes: five side by side, the chosen one explained by its classes of equal answers.
import { bar, el } from "./dom.js";
import { answer } from "./mathtext.js";
import { truth } from "./solutions.js";
import { NORMALIZATIONS, STRATEGIES } from "./votes.js";

const TITLES = {
  majority: "Majority",
  prm: "PRM best-of-N",
  hmr: "Hybrid (HMR)",
  wrf: "Weighted (WRF)",
  weighted: "Reward sum",
};
const NORMALIZATION_TITLES = {
  minmax: "min–max over the answers, as in the paper",
  share: "none: mean reward, share of candidates",
};
/** Classes that are shown at once; the others on demand. */
const SHOWN = 8;

/**
 * The panel; `onChange` is called when another strategy or weight is chosen, `onNormalization` when WRF is to compare
 * rewards and frequencies in another way, `onShow` with the class of answers whose solutions are asked for.
 */
export class Ballot {
  constructor(place, { onChange, onNormalization, onShow }) {
    this.onShow = onShow;
    this.all = false;
    this.set = new Map();
    this.tiles = Object.fromEntries(STRATEGIES.map((strategy) => [strategy, tile(strategy, onChange)]));
    this.agreement = el("p", { class: "agreement" });
    this.explanation = el("p", { class: "explanation", "aria-live": "polite", id: "explanation" });
    this.slider = el("input", { type: "range", id: "alpha", min: "0", max: "1", step: "0.01", value: "0.5" });
    // the slider tells its value by itself
    this.output = el("output", { for: "alpha", "aria-live": "off" });
    this.strip = el("div", { class: "strip", id: "alpha-strip" });
    const offered = NORMALIZATIONS.map((value) => el("option", { value }, NORMALIZATION_TITLES[value]));
    this.normalizations = el("select", { id: "normalization" }, ...offered);
    this.classes = el("ol", { class: "classes" });
    this.more = el("button", { type: "button", class: "quiet" });
    this.slider.addEventListener("input", onChange);
    this.normalizations.addEventListener("change", onNormalization);
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      onChange();
    });
    place.replaceChildren(
      el("fieldset", { class: "tiles" }, el("legend", {}, "Five votes"), ...STRATEGIES.map((own) => this.tiles[own].node)),
      this.agreement,
      this._alpha(),
      this.explanation,
      this.classes,
      this.more,
    );
  }

  get alpha() {
    return Number(this.slider.value);
  }

  set alpha(value) {
    this.slider.value = String(value);
  }

  get normalization() {
    return this.normalizations.value;
  }

  set normalization(value) {
    this.normalizations.value = value;
  }

  get strategy() {
    return STRATEGIES.find((own) => this.tiles[own].radio.checked);
  }

  set strategy(value) {
    this.tiles[value].radio.checked = true;
  }

  /** Shows which answer wins at which weight: stretches `{from, to, class}` of [0, 1]. */
  showSweep(stretches, names) {
    this.strip.replaceChildren(
      ...stretches.map(({ from, to, members }) => {
        const range = `α ${from.toFixed(2)}–${to.toFixed(2)}: `;
        const piece = el("span", {}, el("span", { class: "unseen" }, range), this._answer(names[members[0]]));
        piece.style.flexGrow = String(Math.max(to - from, 0.01));
        return piece;
      }),
    );
  }

  /** Shows outcomes by strategy; `names[i]` is the answer of candidate i, `correct[i]` whether it is right, if known. */
  show(outcomes, names, correct) {
    this.correct = correct;
    for (const own of STRATEGIES) this._tile(own, outcomes[own], names);
    this._agreement(outcomes);
    this.output.textContent = this.alpha.toFixed(2);
    const outcome = outcomes[this.strategy];
    this.explanation.replaceChildren(...this._explained(outcome, names));
    this._classes(outcome, names);
  }

  _alpha() {
    return el(
      "div",
      { class: "alpha" },
      el("label", { for: "alpha" }, "α, the weight of the reward in WRF"),
      this.output,
      this.slider,
      this.strip,
      el("div", { class: "normalization" }, el("label", { for: "normalization" }, "Normalisation"), this.normalizations),
    );
  }

  _tile(strategy, outcome, names) {
    const { answer: place, known, how } = this.tiles[strategy];
    const [elected] = outcome.candidates[0].members;
    place.replaceChildren(this._answer(names[elected]));
    known.replaceChildren(truth(this.correct[elected]));
    const margin = outcome.margin === null ? "no other answer" : `margin ${short(outcome.margin)}`;
    how.textContent = outcome.tied ? `tie of ${outcome.tied}` : margin;
    how.classList.toggle("tie", outcome.tied > 0);
  }

  _agreement(outcomes) {
    const groups = new Map();
    for (const own of STRATEGIES) {
      const first = outcomes[own].candidates[0].members[0];
      groups.set(first, [...(groups.get(first) ?? []), TITLES[own]]);
    }
    this.agreement.textContent =
      groups.size === 1
        ? "All five elect the same answer."
        : `They elect ${groups.size} different answers: ${[...groups.values()].map((own) => own.join(", ")).join(" against ")}.`;
  }

  _explained(outcome, names) {
    const [winner] = outcome.candidates;
    const total = names.length;
    const told = this._reason(outcome, winner, total, names);
    if (outcome.tied) {
      const order = outcome.decidedBy === "majority" ? "" : "more candidates win, then the higher mean reward, then ";
      told.push(` It is a tie of ${outcome.tied} answers: ${order}who comes first.`);
    } else if (outcome.margin !== null) {
      told.push(` The margin over the next answer is ${short(outcome.margin)}.`);
    }
    const silent = names.filter((name) => name === null).length;
    if (silent > 0) told.push(` ${silent} of the ${total} candidates ${silent === 1 ? "has" : "have"} no answer; they can’t win, but count.`);
    return told;
  }

  _reason(outcome, winner, total, names) {
    const name = el("strong", {}, this._answer(names[winner.members[0]]));
    const share = `${winner.count} of ${total} candidates`;
    if (outcome.decidedBy === "unanimous") return [name, " wins without a vote: no candidate has another answer."];
    if (outcome.strategy === "majority") return [name, ` has ${share}; no answer has more.`];
    if (outcome.strategy === "hmr" && outcome.decidedBy === "majority") {
      return [name, ` has ${share}, at least half: the majority decides, whatever the rewards.`];
    }
    const highest = `solution ${outcome.solutionIndex + 1} with ${figure(winner.best)}`;
    if (outcome.strategy === "hmr") {
      const halves = outcome.candidates.filter(({ count }) => 2 * count === total).length === 2;
      const why = halves ? `Two answers have half of the ${total} candidates each` : `No answer has half of the ${total} candidates`;
      return [`${why}, so the highest reward decides: `, name, `, ${highest}.`];
    }
    if (outcome.strategy === "prm") return ["The highest reward decides: ", name, `, ${highest}.`];
    if (outcome.strategy === "weighted") {
      return [name, ` has the highest sum of rewards, ${winner.total.toFixed(3)} from ${share}.`];
    }
    const [a, m, f] = [this.alpha, winner.normalizedReward, winner.normalizedFrequency];
    const sum = `${a.toFixed(2)} × ${m.toFixed(3)} + ${(1 - a).toFixed(2)} × ${f.toFixed(3)} = ${winner.score.toFixed(3)}`;
    if (this.normalization === "share") return [name, ` has the highest α × mean reward + (1 − α) × share of candidates: ${sum}.`];
    return [name, ` has the highest α × reward + (1 − α) × frequency, both normalised: ${sum}.`];
  }

  _classes(outcome, names) {
    const { candidates } = outcome;
    const shown = this.all ? candidates : candidates.slice(0, SHOWN);
    const scale = { total: names.length, sum: Math.max(...candidates.map((own) => own.total)) };
    this.classes.replaceChildren(...shown.map((own, rank) => this._class(outcome, own, rank, names, scale)));
    this.more.hidden = candidates.length <= SHOWN;
    this.more.textContent = this.all ? "Show fewer answers" : `Show all ${candidates.length} answers`;
  }

  _class(outcome, own, rank, names, scale) {
    const mark = rank === 0 ? "★ elected" : rank < outcome.tied ? "tied" : "";
    const show = el("button", { type: "button", class: "quiet" }, own.count === 1 ? "Show it" : `Show all ${own.count}`);
    const name = this._answer(names[own.members[0]]);
    show.append(el("span", { class: "unseen" }, ` with the answer ${names[own.members[0]]}`));
    show.addEventListener("click", () => this.onShow(own.members[0]));
    return el(
      "li",
      { class: rank === 0 ? "class winner" : "class" },
      el(
        "div",
        { class: "class-head" },
        el("strong", {}, name),
        truth(this.correct[own.members[0]]),
        el("span", { class: "vote" }, mark),
        show,
      ),
      el("dl", {}, ...this._measures(outcome, own, scale)),
    );
  }

  _measures(outcome, own, { total, sum }) {
    const measures = [
      measure("candidates", `${own.count} of ${total}`, [own.count / total], "frequency"),
      measure("mean reward", figure(own.mean), [own.mean ?? 0]),
    ];
    if (outcome.strategy === "prm" || outcome.strategy === "hmr") {
      measures.push(measure("highest reward", figure(own.best), [own.best ?? 0]));
    }
    if (outcome.strategy === "weighted") {
      measures.push(measure("sum of rewards", own.total.toFixed(3), [sum > 0 ? own.total / sum : 0]));
    }
    if (outcome.strategy === "wrf") {
      const [m, f] = [own.normalizedReward, own.normalizedFrequency];
      if (this.normalization === "minmax") {
        measures.push(
          measure("normalised reward", m.toFixed(3), [m]),
          measure("normalised frequency", f.toFixed(3), [f], "frequency"),
        );
      }
      measures.push(measure("combined", own.score.toFixed(3), [this.alpha * m, (1 - this.alpha) * f]));
    }
    return measures;
  }

  // a slide of α shows the same answers again and again
  _answer(name) {
    if (!this.set.has(name)) this.set.set(name, answer(name));
    return this.set.get(name).cloneNode(true);
  }
}

function tile(strategy, onChange) {
  const radio = el("input", { type: "radio", name: "strategy", value: strategy, checked: strategy === "wrf" });
  radio.addEventListener("change", onChange);
  const place = el("span", { class: "tile-answer" });
  const known = el("span", { class: "known" });
  const how = el("span", { class: "how" });
  const node = el("label", { class: "tile" }, radio, el("span", { class: "name" }, TITLES[strategy]), place, known, how);
  return { node, radio, answer: place, known, how };
}

function measure(name, value, parts, kind = "reward") {
  return el("div", {}, el("dt", {}, name), el("dd", {}, bar(parts, kind), el("span", { class: "number" }, value)));
}

function figure(value) {
  return value === null ? "none" : value.toFixed(3);
}

function short(value) {
  return Number.isInteger(value) ? String(value) : value.toFixed(3);
}
