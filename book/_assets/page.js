/* Small repairs of generated markup, so that keyboards and screen readers get on with it. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    // A wide table scrolls inside a box of its own, which the keyboard can reach.
    const box = document.createElement("div");
    box.className = "icl-scroll";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "table");
    table.before(box);
    box.append(table);
    // The corner above a table's row names heads nothing.
    for (const cell of table.querySelectorAll("th:empty")) cell.replaceWith(document.createElement("td"));
  }
  // The theme's link home stands outside every landmark; screen readers go from landmark to landmark.
  const home = document.querySelector(".sidebar-primary-item:has(> .navbar-brand)");
  home?.setAttribute("role", "navigation");
  home?.setAttribute("aria-label", "home");
  // Roles that ARIA has withdrawn, from the bibliography's generator.
  for (const entry of document.querySelectorAll(".citation-list, .citation")) entry.removeAttribute("role");
});
