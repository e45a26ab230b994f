// What follows from the scores that are there: rewards, first errors, votes. Nothing here asks the server.
import { Ballot } from "./ballot.js";
import { byId, counted, el } from "./dom.js";
import { typeset } from "./mathtext.js";
import { firstError, reward } from "./scores.js";
import { legend, markElected, showSolutions } from "./solutions.js";
import { decide, STRATEGIES, sweep } from "./votes.js";

/** Votes and solutions, shown in the page's element `outcome`. */
export class Results {
  constructor() {
    this.scored = null;
    byId("outcome").replaceChildren(...frame());
    this.ballot = new Ballot(byId("ballot"), {
      onChange: () => this.vote(),
      onNormalization: () => {
        this._sweep();
        this.vote();
      },
      onShow: (first) => this._showClass(first),
    });
    byId("order").addEventListener("change", () => this._arrange());
    byId("show").addEventListener("change", () => this._arrange());
  }

  /** Whether scores are shown. */
  get there() {
    return this.scored !== null;
  }

  /**
   * Shows solutions of a problem as `/score_steps` answers them; no vote yet. One whose `step_scores` are null has a
   * given `reward`, or none, which is null. `correct`, where it is there, tells whether a solution's answer is right.
   */
  showScores(problem, solutions, { aggregate, threshold }) {
    this.scored = solutions;
    this.classes = null;
    this.comparedAsText = [];
    byId("asked").textContent = problem;
    typeset([byId("asked")]);
    byId("ballot").hidden = true;
    byId("scored").hidden = false;
    this._offerClasses();
    this.weigh({ aggregate, threshold });
  }

  /**
   * Takes the votes: `classes[i]` names the class of equal answers of solution i, null without one; `comparedAsText`
   * are the indices of those whose answers could not be compared as mathematics.
   */
  showVotes(classes, comparedAsText = []) {
    this.classes = classes;
    this.comparedAsText = comparedAsText;
    byId("ballot").hidden = false;
    this._notice();
    this._offerClasses();
    this._sweep();
    this.vote();
  }

  /** Draws rewards and first errors, and with them the votes, anew. */
  weigh({ aggregate, threshold }) {
    if (!this.there) return;
    this.rewards = this.scored.map((own) => (own.step_scores === null ? own.reward : reward(own.step_scores, aggregate)));
    const derived = this.scored.map((own, index) => ({
      reward: this.rewards[index],
      firstError: own.step_scores === null ? null : firstError(own.step_scores, threshold),
    }));
    byId("legend").replaceChildren(...legend(threshold, this.scored));
    this._notice();
    this.cards = showSolutions(byId("solutions"), this.scored, derived, threshold);
    this._arrange();
    if (this.classes !== null) {
      this._sweep();
      this.vote();
    }
  }

  /** Takes all votes again from the scores that are there. */
  vote() {
    if (!this.there || this.classes === null) return;
    const { alpha, normalization } = this.ballot;
    const outcomes = Object.fromEntries(
      STRATEGIES.map((own) => [own, decide(own, this.classes, this.rewards, alpha, normalization)]),
    );
    this.ballot.show(outcomes, this._names(), this.scored.map((own) => own.correct));
    const chosen = outcomes[this.ballot.strategy];
    markElected(this.cards, chosen.solutionIndex, chosen.candidates[0].members);
  }

  _names() {
    return this.scored.map((own) => own.answer);
  }

  _sweep() {
    this.ballot.showSweep(sweep(this.classes, this.rewards, this.ballot.normalization), this._names());
  }

  // what the numbers do not show
  _notice() {
    const told = [];
    const missing = this.rewards.filter((own) => own === null).length;
    if (missing > 0) {
      const number = `${missing} of ${counted(this.scored.length, "solution")}`;
      told.push(`${number} could not be scored. Their answers count, but bring no reward.`);
    }
    if (this.comparedAsText.length > 0) {
      const which = new Intl.ListFormat("en").format(this.comparedAsText.map((index) => String(index + 1)));
      const noun = this.comparedAsText.length === 1 ? "The answer of solution" : "The answers of solutions";
      told.push(`${noun} ${which} could not be compared as mathematics in time, only as written.`);
    }
    byId("notices").replaceChildren(...told.map((text) => el("p", {}, text)));
  }

  _offerClasses() {
    const classes = this.classes ?? [];
    const firsts = [...new Set(classes)].filter((name) => name !== null).map((name) => classes.indexOf(name));
    const options = firsts.map((first) => el("option", { value: String(first) }, `answer ${this.scored[first].answer}`));
    if (classes.includes(null)) options.push(el("option", { value: "none" }, "without an answer"));
    byId("show").replaceChildren(el("option", { value: "" }, "all solutions"), ...options);
  }

  _showClass(first) {
    byId("show").value = String(first);
    this._arrange();
    byId("solutions-title").scrollIntoView({ block: "start" });
    byId("show").focus({ preventScroll: true });
  }

  // order and choice of the cards, moved rather than made anew
  _arrange() {
    if (!this.there) return;
    const indices = this.cards.map((_, index) => index);
    if (byId("order").value === "reward") indices.sort((one, other) => (this.rewards[other] ?? -1) - (this.rewards[one] ?? -1) || one - other);
    const shown = this.classes === null ? "" : byId("show").value;
    const wanted = shown === "none" ? null : this.classes?.[Number(shown)];
    this.cards.forEach((card, index) => {
      card.hidden = shown !== "" && this.classes[index] !== wanted;
    });
    const ordered = indices.map((index) => this.cards[index]);
    if (ordered.some((card, place) => byId("solutions").children[place] !== card)) byId("solutions").append(...ordered);
  }
}

function frame() {
  const choice = (id, text, ...options) => el("div", {}, el("label", { for: id }, text), " ", el("select", { id }, ...options));
  const order = [el("option", { value: "given" }, "as given"), el("option", { value: "reward" }, "highest reward first")];
  const choices = el("div", { class: "choices" }, choice("show", "Show"), choice("order", "Order", ...order));
  return [
    el("div", { id: "notices" }),
    el("div", { id: "ballot", hidden: true }),
    el(
      "div",
      { id: "scored", hidden: true },
      el("div", { class: "solutions-head" }, el("h2", { id: "solutions-title" }, "Solutions"), choices),
      el("p", { class: "legend", id: "legend" }),
      el("p", { class: "asked", id: "asked" }),
      el("div", { id: "solutions" }),
    ),
  ];
}
