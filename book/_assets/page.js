/* Small repairs of generated markup, so that keyboards and screen readers get on with it. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    // A wide table scrolls inside a box of its own.
    const box = document.createElement("div");
    box.className = "icl-scroll";
    table.before(box);
    box.append(table);
    // The corner above a table's row names heads nothing.
    for (const cell of table.querySelectorAll("th:empty")) cell.replaceWith(document.createElement("td"));
    // A number with its error, or a name, is read in one piece.
    for (const cell of table.querySelectorAll("td, th")) cell.classList.toggle("icl-short", cell.textContent.trim().length <= 16);
  }
  // Where something wide goes on, its edge fades, until it is scrolled to the end.
  const wide = [...document.querySelectorAll(".bd-article :is(.icl-scroll, div.math, pre)")];
  const mark = (box, from, room, all) => {
    box.classList.toggle("icl-goes-on", from + room < all - 1);
    box.classList.toggle("icl-came-from", from > 1);
  };
  const look = box => mark(box, box.scrollLeft, box.clientWidth, box.scrollWidth);
  // What scrolls the keyboard can reach, and a screen reader says what it is.
  const reach = (box, scrolls) => {
    const name = box.matches(".icl-scroll") ? "table" : box.matches("pre") ? "code" : "formula";
    for (const [key, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", name]])
      scrolls ? box.setAttribute(key, value) : box.removeAttribute(key);
  };
  // A table that is a little too wide is set a little smaller; what is much too wide scrolls.
  const fit = boxes => {
    const tables = boxes.flatMap(box => [...box.querySelectorAll(":scope > table")]);
    tables.forEach(table => table.style.removeProperty("font-size"));
    const rooms = tables.map(table => table.parentElement.clientWidth / table.scrollWidth);
    tables.forEach((table, i) => { if (rooms[i] < 1 && rooms[i] > 0.8) table.style.fontSize = `${0.86 * rooms[i]}rem`; });
  };
  // A formula within a line that is wider than the line scrolls too; MathJax has to be done before it can be told.
  const findLong = () => {
    const long = [...document.querySelectorAll(".bd-article span.math mjx-container:not(.icl-long)")].filter(formula =>
      formula.getBoundingClientRect().width > (formula.closest("p, li, dd, td")?.clientWidth ?? Infinity));
    for (const formula of long) {
      formula.classList.add("icl-long");
      formula.addEventListener("scroll", () => look(formula), { passive: true });
      wide.push(formula);
    }
  };
  // Everything is measured before anything is changed: after a change, the next measurement lays out the whole page anew.
  const lookAt = inside => {
    findLong();
    const boxes = wide.filter(box => inside.contains(box));
    fit(boxes);
    const sizes = boxes.map(box => [box.scrollLeft, box.clientWidth, box.scrollWidth]);
    boxes.forEach((box, i) => {
      const [from, room, all] = sizes[i];
      mark(box, from, room, all);
      reach(box, all > room + 1);
    });
  };
  const lookAtAll = () => lookAt(document);
  wide.forEach(box => box.addEventListener("scroll", () => look(box), { passive: true }));
  addEventListener("resize", lookAtAll);
  document.addEventListener("toggle", ({ target }) => lookAt(target), true); // what a dropdown hid had no width
  addEventListener("load", () => { lookAtAll(); window.MathJax?.startup?.promise?.then(lookAtAll); });
  // What a link into a fold leads to is shown: the folds around it are opened.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const shut = [];
    for (let up = target.parentElement; up; up = up.parentElement) if (up.matches("details:not([open])")) shut.push(up);
    shut.forEach(fold => { fold.open = true; });
    if (shut.length) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  // One button opens and closes all code of a page.
  const code = [...document.querySelectorAll(".bd-article details.hide:has(.cell_input)")];
  if (code.length > 1) {
    const button = document.createElement("button");
    const all = () => code.every(fold => fold.open);
    const tell = () => {
      button.title = all() ? "Hide all code" : "Show all code";
      button.setAttribute("aria-label", button.title);
    };
    button.className = "btn btn-sm icl-all-code";
    button.innerHTML = '<span class="btn__icon-container"><i class="fas fa-code"></i></span>';
    button.addEventListener("click", () => {
      const open = !all();
      code.forEach(fold => { fold.open = open; });
    });
    code.forEach(fold => fold.addEventListener("toggle", tell));
    tell();
    document.querySelector(".article-header-buttons").prepend(button);
  }
  // The theme's link home stands outside every landmark; screen readers go from landmark to landmark.
  const home = document.querySelector(".sidebar-primary-item:has(> .navbar-brand)");
  home?.setAttribute("role", "navigation");
  home?.setAttribute("aria-label", "home");
  // What folds in the list of pages shows an arrow, which says nothing aloud.
  for (const fold of document.querySelectorAll(".bd-sidebar-primary details > summary"))
    fold.setAttribute("aria-label", `pages of ${fold.closest("li").querySelector("a").textContent.trim()}`);
  // Roles that ARIA has withdrawn, from the bibliography's generator.
  for (const entry of document.querySelectorAll(".citation-list, .citation")) entry.removeAttribute("role");
});
