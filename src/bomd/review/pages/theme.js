"use strict";

/* Light or dark, as the reader chose last on this address; else as the system says. Run before anything is drawn. */
const THEME = "bomd-theme";

function showTheme() {
  const chosen = localStorage.getItem(THEME);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

showTheme();
document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme").addEventListener("click", () => {
    localStorage.setItem(THEME, isDark() ? "light" : "dark");
    showTheme();
  });
});
