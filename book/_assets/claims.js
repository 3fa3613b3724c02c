/* The page of claims as a tool: cut down by paper, verdict, chapter and words, and sorted. What is asked stands in the
   address, so that an answer can be sent to somebody. Without scripts the page is the whole list. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const settled = document.querySelector("div.icl-claim[id]")?.closest("section")?.parentElement;
  if (!settled) return;
  const papers = [...settled.querySelectorAll(":scope > section")].filter(part => part.querySelector("div.icl-claim[id]"));
  const rows = papers.flatMap((part, place) => [...part.querySelectorAll("div.icl-claim[id]")].map(box => ({
    box, part, place,
    paper: part.querySelector("h2").firstChild.textContent.trim(),
    verdict: box.querySelector("strong").textContent,
    chapter: box.querySelector("p:first-child a")?.textContent ?? "none yet",
    text: box.textContent.toLowerCase(),
  })));
  const verdicts = [...document.querySelectorAll("table td:first-child")].map(cell => cell.textContent.trim());
  const orders = {
    "as in the papers": () => 0,
    verdict: (a, b) => verdicts.indexOf(a.verdict) - verdicts.indexOf(b.verdict),
    chapter: (a, b) => a.chapter.localeCompare(b.chapter),
    name: (a, b) => a.box.id.localeCompare(b.box.id),
  };
  const bar = document.createElement("form");
  bar.className = "icl-filter";
  bar.setAttribute("role", "search");
  bar.setAttribute("aria-label", "claims");
  const choices = {};
  const choose = (name, values, all) => {
    const label = bar.appendChild(document.createElement("label"));
    label.append(`${name[0].toUpperCase()}${name.slice(1)} `);
    choices[name] = label.appendChild(document.createElement("select"));
    choices[name].name = name;
    if (all) choices[name].add(new Option("all", ""));
    for (const value of values) choices[name].add(new Option(value, value));
  };
  for (const name of ["paper", "verdict", "chapter"]) choose(name, new Set(rows.map(row => row[name])), true);
  const label = bar.appendChild(document.createElement("label"));
  label.append("Words ");
  const words = choices.words = label.appendChild(document.createElement("input"));
  Object.assign(words, { type: "search", name: "words", placeholder: "e.g. Figure 2" });
  choose("sort", Object.keys(orders), false);
  const again = bar.appendChild(document.createElement("button"));
  Object.assign(again, { type: "button", textContent: "show all" });
  const told = bar.appendChild(document.createElement("output"));

  const asked = () => Object.fromEntries(Object.entries(choices).map(([name, field]) => [name, field.value]));
  const sift = () => {
    const now = asked();
    // Every word has to be there, in any order; what stands in quotation marks, as it stands.
    const wanted = [...now.words.toLowerCase().matchAll(/"([^"]+)"?|(\S+)/g)].map(found => found[1] ?? found[2]);
    let count = 0;
    for (const row of rows) {
      const fits = ["paper", "verdict", "chapter"].every(name => !now[name] || row[name] === now[name])
        && wanted.every(word => row.text.includes(word));
      row.box.hidden = !fits;
      count += fits;
    }
    papers.forEach(part => { part.hidden = !rows.some(row => row.part === part && !row.box.hidden); });
    const order = orders[now.sort];
    for (const row of [...rows].sort((a, b) => a.place - b.place || order(a, b))) row.part.append(row.box);
    told.textContent = `${count} of ${rows.length} claims`;
  };
  const keep = () => {
    const set = Object.entries(asked()).filter(([name, value]) => value && value !== choices[name].options?.[0].value);
    const address = new URLSearchParams(set).toString();
    history.replaceState(null, "", `${location.pathname}${location.search}${address && `#${address}`}`);
  };
  // An address names one row, or it says what was asked.
  const read = () => {
    const row = rows.find(each => each.box.id === decodeURIComponent(location.hash.slice(1)));
    const given = new URLSearchParams(row ? "" : location.hash.slice(1));
    for (const [name, field] of Object.entries(choices)) {
      field.value = given.get(name) ?? "";
      if (field.options && field.selectedIndex < 0) field.selectedIndex = 0;
    }
    sift();
    row?.box.scrollIntoView();
  };
  bar.addEventListener("input", () => { sift(); keep(); });
  bar.addEventListener("submit", event => event.preventDefault());
  again.addEventListener("click", () => {
    for (const field of Object.values(choices)) if (field.options) field.selectedIndex = 0; else field.value = "";
    sift();
    keep();
    words.focus();
  });
  addEventListener("hashchange", read);
  papers[0].before(bar);
  told.setAttribute("aria-live", "polite");
  read();
});
