// The votes: side by side, the chosen one explained by its classes of equal answers.
import { bar, el } from "./dom.js";
import { explanation, figure, lead, readable, verdict } from "./explanation.js";
import { answer } from "./mathtext.js";
import STRATEGIES from "./strategies.json" with { type: "json" };

const NORMALIZATIONS = {
  minmax: "min–max over the answers, as in the paper",
  share: "none: mean reward, share of candidates",
};
/** Classes that are shown at once; the others on demand. */
const SHOWN = 8;
/** Lengths of α up to this are rounding. */
const NOTHING = 1e-9;

/**
 * The panel. `onStrategy` is called when another strategy is chosen, `onWeights` when WRF is to weigh in another way,
 * `onShow` with the first member of the class whose solutions are to be shown.
 */
export class Ballot {
  constructor(place, { onStrategy, onWeights, onShow }) {
    this.onShow = onShow;
    this.all = false;
    this.typeset = new Map();
    this.named = false;
    const choose = () => {
      this.named = true;
      this._showStrategy();
      onStrategy();
    };
    this.tiles = Object.fromEntries(Object.keys(STRATEGIES).map((strategy) => [strategy, tile(strategy, choose)]));
    // all in one place from the beginning: radio buttons of different trees are no group
    this.sides = el("fieldset", { class: "tiles" }, ...Object.values(this.tiles).map(({ node }) => node));
    this.why = el("summary");
    this.explanation = el("p", { class: "explanation", "aria-live": "polite", id: "explanation" });
    this.slider = el("input", { type: "range", id: "alpha", min: "0", max: "1", step: "0.01", value: "0.5" });
    // a slider says its value by itself
    this.output = el("output", { for: "alpha", "aria-live": "off" });
    this.strip = el("div", { class: "strip", id: "alpha-strip" });
    const options = Object.entries(NORMALIZATIONS).map(([value, text]) => el("option", { value }, text));
    this.normalizations = el("select", { id: "normalization", class: "quiet" }, ...options);
    this.classes = el("ol", { class: "classes" });
    this.more = el("button", { type: "button", class: "quiet" });
    this.slider.addEventListener("input", () => {
      this._showAlpha();
      onWeights();
    });
    this.normalizations.addEventListener("change", onWeights);
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this._showStrategy();
    });
    this.alphaPanel = this._alphaPanel();
    const details = el("div", { class: "stack" }, this.explanation, this.alphaPanel, this.classes, this.more);
    place.replaceChildren(this.sides, el("details", { id: "why" }, this.why, details));
    this._showAlpha();
  }

  get alpha() {
    return Number(this.slider.value);
  }

  get normalization() {
    return this.normalizations.value;
  }

  get strategy() {
    return Object.keys(this.tiles).find((strategy) => this.tiles[strategy].radio.checked);
  }

  /** Chooses what is given and possible; the rest stays. */
  choose({ strategy, alpha, normalization }) {
    if (Object.hasOwn(STRATEGIES, strategy ?? "")) {
      this.named = true;
      this.tiles[strategy].radio.checked = true;
    }
    if (alpha >= 0 && alpha <= 1) this.slider.value = String(alpha);
    if (Object.hasOwn(NORMALIZATIONS, normalization ?? "")) this.normalizations.value = normalization;
    this._showAlpha();
  }

  /** Chooses a strategy as long as nobody has named one. */
  suggest(strategy) {
    if (!this.named && Object.hasOwn(STRATEGIES, strategy)) this.tiles[strategy].radio.checked = true;
  }

  /** Shows a response of `/vote/compare`; `weights`: what it was requested with. */
  show(votes, weights) {
    Object.assign(this, { votes, weights });
    for (const strategy of Object.keys(this.tiles)) this._showTile(strategy);
    this._showSides();
    this._showStrip();
    this._showStrategy();
  }

  _alphaPanel() {
    return el(
      "div",
      { class: "alpha" },
      el("label", { for: "alpha" }, "α, the weight of the reward in WRF"),
      this.output,
      this.slider,
      this.strip,
      el("div", { class: "picker" }, el("label", { for: "normalization" }, "Normalisation"), this.normalizations),
    );
  }

  _showAlpha() {
    this.output.textContent = this.alpha.toFixed(2);
  }

  _showTile(strategy) {
    const { elected, how } = this.tiles[strategy];
    const outcome = this.votes.strategies[strategy];
    const { candidates, margin, tied_answers: tied } = outcome;
    elected.replaceChildren(this._answer(candidates[0].answer));
    const total = this.votes.solutions.length;
    const only = outcome.decided_by === "only_answer" ? readable(candidates[0].count, total) : "no other answer";
    const alone = candidates.length > 1 ? "no other answer can win" : only;
    const ahead = margin === null ? alone : `ahead by ${lead(outcome)}`;
    how.textContent = [tied.length > 0 ? `tie of ${tied.length}` : ahead, ...verdict(outcome)].join("; ");
    how.classList.toggle("tie", tied.length > 0);
  }

  // votes that elect the same answer are one card, the largest first
  _showSides() {
    const firstOf = (strategy) => this.votes.strategies[strategy].candidates[0].members[0];
    const sides = [...Map.groupBy(Object.keys(this.tiles), firstOf).values()];
    sides.sort((one, other) => other.length - one.length);
    const nodes = sides.map((side) => (side.length === 1 ? this.tiles[side[0]].node : this._fold(side)));
    this.sides.replaceChildren(el("legend", { class: "unseen" }, "Votes"), ...nodes);
  }

  _fold(side) {
    const tiles = side.map((strategy) => this.tiles[strategy].node);
    const [{ answer: text, members }] = this.votes.strategies[side[0]].candidates;
    const all = Object.keys(this.tiles).length;
    const summary = el(
      "summary",
      {},
      el("span", { class: "tile-answer" }, this._answer(text)),
      el("span", { class: "name" }, `elected by ${side.length === all ? "all" : `${side.length} of`} ${all} votes`),
      el("span", { class: "how" }, side.map((strategy) => STRATEGIES[strategy].title).join(", ")),
    );
    const open = tiles.some((node) => node.closest(".fold")?.open);
    const hint = el("p", { class: "hint" }, "Votes use different measures: compare only leads with the same words in brackets.");
    return el("details", { class: "fold", open }, summary, el("div", { class: "tiles" }, ...tiles), hint);
  }

  _showStrip() {
    this.strip.replaceChildren(
      ...stretches(this.votes.strategies.wrf.candidates).map(({ from, to, candidate }) => {
        const range = `α ${from.toFixed(2)}–${to.toFixed(2)}: `;
        const piece = el("span", {}, el("span", { class: "unseen" }, range), this._answer(candidate.answer));
        piece.style.flexGrow = String(Math.max(to - from, 0.01));
        return piece;
      }),
    );
  }

  _showStrategy() {
    const { candidates, tied_answers: tied } = this.votes.strategies[this.strategy];
    const name = el("strong", {}, this._answer(candidates[0].answer));
    this.why.replaceChildren(`Why ${STRATEGIES[this.strategy].title} elects `, name.cloneNode(true));
    this.alphaPanel.hidden = this.strategy !== "wrf";
    this.explanation.replaceChildren(...explanation(this.votes, this.strategy, name, this.weights));
    const shown = this.all ? candidates : candidates.slice(0, SHOWN);
    const marks = shown.map((_, rank) => (rank === 0 ? "★ elected" : rank < tied.length ? "tied" : ""));
    this.classes.replaceChildren(...shown.map((candidate, rank) => this._class(candidate, marks[rank], rank === 0)));
    this.more.hidden = candidates.length <= SHOWN;
    this.more.textContent = this.all ? "Show fewer answers" : `Show all ${candidates.length} answers`;
  }

  _class(candidate, mark, wins) {
    const { answer: text, count, members } = candidate;
    const show = el("button", { type: "button", class: "quiet" }, count === 1 ? "Show it" : `Show all ${count}`);
    show.append(el("span", { class: "unseen" }, ` with the answer ${text}`));
    show.addEventListener("click", () => this.onShow(members[0]));
    const name = el("strong", {}, this._answer(text));
    const head = [name, el("span", { class: "vote" }, mark), show];
    return el(
      "li",
      { class: wins ? "class winner" : "class" },
      el("div", { class: "class-head" }, ...head),
      el("dl", {}, ...this._measures(candidate)),
    );
  }

  // what the strategy compares: of WRF its two parts, of the votes by the highest reward that, of others the score
  _measures({ count, mean_reward: mean, max_reward: best, normalized_reward: reward, normalized_frequency: frequency, score }) {
    const total = this.votes.solutions.length;
    const measures = [
      measure("candidates", `${count} of ${total}`, [count / total], "frequency"),
      measure("mean reward", figure(mean), [mean ?? 0]),
    ];
    const { alpha, normalization } = this.weights;
    const { score: title, decided_by: decidedBy } = STRATEGIES[this.strategy];
    // the score of a vote by the highest reward is a frequency where that alone decides
    if (decidedBy === "reward") measures.push(measure(title, figure(best), [best ?? 0]));
    else if (this.strategy === "wrf") {
      if (normalization === "minmax") {
        measures.push(
          measure("normalised reward", figure(reward), [reward]),
          measure("normalised frequency", figure(frequency), [frequency], "frequency"),
        );
      }
      measures.push(measure(title, figure(score), [alpha * reward, (1 - alpha) * frequency]));
    } else if (this.strategy !== "majority") {
      const highest = Math.max(...this.votes.strategies[this.strategy].candidates.map((candidate) => candidate.score));
      measures.push(measure(title, figure(score), [highest > 0 ? Math.max(0, score / highest) : 0]));
    }
    return measures;
  }

  // a slide of α shows the same answers again and again
  _answer(text) {
    if (!this.typeset.has(text)) this.typeset.set(text, answer(text));
    return this.typeset.get(text).cloneNode(true);
  }
}

/**
 * Which answer WRF elects at which α: stretches `{from, to, candidate}` of [0, 1]. The score of an answer is
 * α × reward + (1 − α) × frequency, a line in α, so the highest one stays it until a steeper one crosses it.
 */
export function stretches(candidates) {
  const slope = (candidate) => candidate.normalized_reward - candidate.normalized_frequency;
  const falls = (one, other) => other.normalized_frequency - one.normalized_frequency || slope(other) - slope(one);
  const found = [];
  let [current] = [...candidates].sort(falls);
  let from = 0;
  while (from < 1) {
    const steeper = candidates.filter((candidate) => slope(candidate) > slope(current));
    const behind = (candidate) => current.normalized_frequency - candidate.normalized_frequency;
    const crossings = steeper.map((candidate) => [behind(candidate) / (slope(candidate) - slope(current)), candidate]);
    crossings.sort(([one, a], [other, b]) => one - other || slope(b) - slope(a));
    const [to, next] = crossings[0] ?? [1, null];
    // where three lines meet, the middle one is the highest nowhere
    if (to - from > NOTHING) found.push({ from, to: Math.min(to, 1), candidate: current });
    [from, current] = [to, next];
  }
  return found;
}

function tile(strategy, onChange) {
  const radio = el("input", { type: "radio", name: "strategy", value: strategy, checked: strategy === "wrf" });
  radio.addEventListener("change", onChange);
  const elected = el("span", { class: "tile-answer" });
  const how = el("span", { class: "how" });
  const name = el("span", { class: "name" }, STRATEGIES[strategy].title);
  return { node: el("label", { class: "tile" }, radio, name, elected, how), radio, elected, how };
}

function measure(name, value, parts, kind = "reward") {
  return el("div", {}, el("dt", {}, name), el("dd", {}, bar(parts, kind), el("span", { class: "number" }, value)));
}
