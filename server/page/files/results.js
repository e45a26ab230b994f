// Scores and votes of candidate solutions: the solutions step by step, and the votes that the server takes on them.
import { Ballot } from "./ballot.js";
import { guarded } from "./complaints.js";
import { byId, counted, el, offer } from "./dom.js";
import { risk } from "./input.js";
import { typeset } from "./mathtext.js";
import { legend, markElected, showSolutions } from "./solutions.js";

/** Milliseconds without a change of α after which the votes are taken again. */
const PAUSE = 100;

/** Votes and solutions, shown in the page's element `outcome`. */
export class Results {
  /** `compare` gets the body of a request to `/vote/compare` and an `AbortSignal`, and returns the response. */
  constructor(compare) {
    this.compare = compare;
    this.solutions = null;
    this.votes = null;
    this.voting = new AbortController();
    byId("outcome").replaceChildren(...frame());
    const vote = guarded(() => this.vote());
    this.ballot = new Ballot(byId("ballot"), {
      onStrategy: () => this._mark(),
      onWeights: () => {
        byId("ballot").setAttribute("aria-busy", "true");
        clearTimeout(this.timer);
        this.timer = setTimeout(vote, PAUSE);
      },
      onShow: (first) => this._showClass(first),
    });
    byId("order").addEventListener("change", () => this._arrange());
    byId("show").addEventListener("change", () => this._arrange());
  }

  /** Whether scores are shown. */
  get there() {
    return this.solutions !== null;
  }

  /**
   * Shows solutions of a problem as `/score_steps` returns them; no vote yet. `request`: body of the request by which
   * `vote` is to take the votes, but for α and the normalisation.
   */
  showScores(problem, solutions, threshold, request) {
    this.votes = null;
    this.classes = [];
    byId("problem-text").textContent = /[\\$]/.test(problem) ? problem : ""; // else it reads as well where it was written
    typeset([byId("problem-text")]);
    byId("ballot").hidden = true;
    byId("scored").hidden = false;
    this._offerClasses();
    this.showRewards(solutions, threshold, request);
  }

  /** Shows the same solutions with other rewards; the votes stay until `vote` has taken them again. */
  showRewards(solutions, threshold, request) {
    this._stopVoting();
    this.solutions = solutions;
    this.request = request;
    this.showThreshold(threshold);
  }

  /** Marks errors by another threshold. */
  showThreshold(threshold) {
    if (!this.there) return;
    byId("legend").replaceChildren(...legend(threshold, this.solutions));
    this._notice();
    this.cards = showSolutions(byId("solutions"), this.solutions, threshold);
    this._arrange();
    this._mark();
  }

  /** Takes the votes; those that are shown stay until the new ones are there. Raises `Problem`. */
  async vote() {
    this._stopVoting();
    const { signal } = this.voting;
    const weights = { alpha: this.ballot.alpha, normalization: this.ballot.normalization };
    byId("ballot").setAttribute("aria-busy", "true");
    try {
      this.votes = await this.compare({ ...this.request, ...weights, ...risk() }, signal);
    } finally {
      if (!signal.aborted) byId("ballot").setAttribute("aria-busy", "false");
    }
    byId("ballot").hidden = false;
    this.classes = classesOf(this.votes);
    this._notice();
    this._offerClasses();
    this.ballot.show(this.votes, weights);
    this._mark();
  }

  // whatever is under way is of earlier weights or solutions
  _stopVoting() {
    clearTimeout(this.timer);
    this.voting.abort();
    this.voting = new AbortController();
  }

  _mark() {
    if (this.votes === null) return;
    const { solution_index: elected, candidates } = this.votes.strategies[this.ballot.strategy];
    markElected(this.cards, elected, candidates[0].members);
  }

  // what the numbers do not show
  _notice() {
    const notices = [];
    const missing = this.solutions.filter((solution) => solution.reward === null).length;
    if (missing > 0) {
      const number = `${missing} of ${counted(this.solutions.length, "solution")}`;
      notices.push(`${number} could not be scored. Their answers count, but bring no reward.`);
    }
    const asText = this.votes?.compared_as_text ?? [];
    if (asText.length > 0) {
      const which = new Intl.ListFormat("en").format(asText.map((index) => String(index + 1)));
      const noun = asText.length === 1 ? "The answer of solution" : "The answers of solutions";
      notices.push(`${noun} ${which} could not be compared as mathematics in time, only as written.`);
    }
    byId("notices").replaceChildren(...notices.map((text) => el("p", { class: "notice" }, text)));
  }

  _offerClasses() {
    const firsts = this.classes.filter((first, index) => first === index);
    const options = firsts.map((first) => [String(first), `answer ${this.solutions[first].answer}`]);
    if (this.classes.includes(null)) options.push(["none", "without an answer"]);
    offer(byId("show"), [["", "all solutions"], ...options]);
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
    const rewardOf = (index) => this.solutions[index].reward ?? -1;
    if (byId("order").value === "reward") indices.sort((one, other) => rewardOf(other) - rewardOf(one) || one - other);
    const shown = byId("show").value;
    this.cards.forEach((card, index) => {
      card.hidden = shown !== "" && String(this.classes[index] ?? "none") !== shown;
    });
    const ordered = indices.map((index) => this.cards[index]);
    if (ordered.some((card, place) => byId("solutions").children[place] !== card)) byId("solutions").append(...ordered);
  }
}

/** For each solution the first one with an equal answer, null without an answer. All strategies have the same classes. */
function classesOf({ solutions, strategies }) {
  const classes = new Array(solutions.length).fill(null);
  const [{ candidates }] = Object.values(strategies);
  for (const { members } of candidates) for (const index of members) classes[index] = members[0];
  return classes;
}

function frame() {
  const choice = (id, text, ...options) => {
    const select = el("select", { id, class: "quiet" }, ...options);
    return el("div", { class: "picker" }, el("label", { for: id }, text), " ", select);
  };
  const order = [el("option", { value: "given" }, "as given"), el("option", { value: "reward" }, "highest reward first")];
  const choices = el("div", { class: "row" }, choice("show", "Show"), choice("order", "Order", ...order));
  return [
    el("div", { id: "notices", class: "stack" }),
    el("div", { id: "ballot", class: "stack", hidden: true }),
    el(
      "div",
      { id: "scored", class: "stack", hidden: true },
      el("div", { class: "solutions-head row" }, el("h2", { id: "solutions-title" }, "Solutions"), choices),
      el("p", { class: "legend row hint", id: "legend" }),
      el("p", { class: "problem-text", id: "problem-text" }),
      el("div", { id: "solutions" }),
    ),
  ];
}
