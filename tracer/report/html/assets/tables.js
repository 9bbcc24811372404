// Tables: columns are sorted, rows beyond the first ones are shown when they are asked for, and a row leads to its chain.
const MOST_ROWS = 40;
const TIMES = { us: 1, ms: 1e3, s: 1e6 };
const SIZES = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
const PREFIXES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };

// What a cell of figures is sorted by: of `3 x, 12.3 us` the time, of `< 0.1 %` less than of `0.1 %`.
function valueOf(text) {
  const found = [...text.matchAll(/(-?[\d,]*\.?\d+)(?: ([a-zA-Z]+))?/g)];
  if (!found.length) return -Infinity;
  const [, number, unit = ""] = found.find((each) => each[2] in TIMES) || found[0];
  const size = TIMES[unit] || SIZES[unit] || (unit.length > 1 && PREFIXES[unit[0]]) || 1;
  return Number(number.replaceAll(",", "")) * size - (text.startsWith("<") ? 1e-9 : 0);
}

class Table {
  // `leads(names)`: whether a row with these names leads anywhere.
  constructor(table, open, timeline, leads = () => true) {
    this.open = open;
    this.timeline = timeline;
    this.body = table.tBodies[0];
    this.heads = [...table.tHead.rows[0].cells];
    this.titles = this.heads.map((head) => head.textContent);
    this.right = this.heads.map((head) => head.style.textAlign === "right");
    this.rows = [...this.body.rows];
    this.most = MOST_ROWS;
    for (const row of this.rows) [...row.cells].forEach((cell, column) => { cell.dataset.title = this.titles[column]; });
    this.heads.forEach((head, column) => this.titles[column] && this.button(head, column));
    this.section = table.closest(".part").id;
    this.inSteps = this.section === "steps";
    this.leads = this.rows.filter((row) => this.inSteps || (row.querySelector("code") && leads(this.names(row))));
    for (const row of this.leads) this.lead(row);
    if (this.rows.length > MOST_ROWS) table.after(this.rest());
    this.place();
  }

  button(head, column) {
    const button = element("button", "sort", this.titles[column]);
    button.type = "button";
    button.addEventListener("click", () => this.sort(column));
    head.replaceChildren(button);
  }

  // Figures from the largest, texts from the first; again: the other way round.
  sort(column) {
    const now = this.heads[column].ariaSort;
    const down = now ? now === "ascending" : this.right[column];
    for (const head of this.heads) head.removeAttribute("aria-sort");
    this.heads[column].ariaSort = down ? "descending" : "ascending";
    const by = new Map(this.rows.map((row) => [row, this.right[column] ? valueOf(row.cells[column].textContent) : row.cells[column].textContent]));
    const order = (a, b) => (this.right[column] ? by.get(a) - by.get(b) : by.get(a).localeCompare(by.get(b), "en", { numeric: true }));
    this.rows.sort((a, b) => (down ? order(b, a) : order(a, b)));
    this.place();
  }

  rest() {
    const button = element("button", "rest", "Show all " + this.rows.length.toLocaleString("en-US") + " rows");
    button.type = "button";
    button.addEventListener("click", () => {
      this.most = Infinity;
      this.place();
      button.remove();
      this.focus(this.leads.indexOf(this.rows[MOST_ROWS]));
    });
    return button;
  }

  place() {
    this.rows.forEach((row, number) => { row.hidden = number >= this.most; });
    this.body.replaceChildren(...this.rows);
    this.leads = this.rows.filter((row) => row.classList.contains("leads"));
    this.leads.forEach((row, number) => { row.tabIndex = number ? -1 : 0; });
  }

  // Tab stops at one row of a table; up and down go from there to the others.
  lead(row) {
    row.classList.add("leads");
    row.addEventListener("click", () => getSelection().toString() || this.show(row, null));
    row.addEventListener("keydown", (event) => {
      if (event.target !== row || event.ctrlKey || event.altKey || event.metaKey) return;
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === "Enter") this.show(row, row);
      if (by) this.focus(this.leads.indexOf(row) + by);
      if (by || event.key === "Enter") event.preventDefault();
    });
  }

  focus(number) {
    const row = this.leads[number];
    if (!row || row.hidden) return;
    for (const each of this.leads) each.tabIndex = each === row ? 0 : -1;
    row.focus();
  }

  // `from`: the row that was opened with a key.
  show(row, from) {
    const cells = [...row.cells].map((cell) => cell.textContent);
    if (this.inSteps) return this.showStep(cells[this.titles.indexOf("step")]);
    const facts = cells.map((text, column) => [this.titles[column], text]).filter(([, text], column) => text && this.right[column]);
    this.open(facts, this.names(row), from);
  }

  names(row) {
    const names = [...row.querySelectorAll("code")].map((code) => code.textContent);
    return names.flatMap((text) => [text, ...text.split(" -> ")]);
  }

  showStep(name) {
    const number = this.timeline.steps.findIndex((step) => step.step === name);
    if (number < 0) return;
    const select = document.getElementById("step");
    select.value = number;
    select.dispatchEvent(new Event("change"));
    document.getElementById("timeline").scrollIntoView();
  }
}
