// Whoever uses no mouse can reach, and so scroll, what is wider than its place.
document$.subscribe(() => {
  requestAnimationFrame(() => {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .output, p:has(> img[src*=\"images/methods/\"])")) {
      wide.tabIndex = 0;
    }
    document.querySelectorAll(".md-code__nav").forEach((nav, number) => nav.setAttribute("aria-label", `Code ${number + 1}`));
  });
});
