// Whoever uses no mouse can reach, and so scroll, what is wider than its place.
const WIDE = '.md-typeset__scrollwrap, .md-typeset pre > code, .output, p:has(> img[src*="images/methods/"])';

document$.subscribe(() => {
  requestAnimationFrame(() => {
    for (const wide of document.querySelectorAll(WIDE)) wide.tabIndex = 0;
    document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // it opens as a dialog
    document.querySelectorAll(".md-code__nav").forEach((nav, place) => nav.setAttribute("aria-label", `Code ${place + 1}`));
  });
});
