// Light or dark: the system's, until the visitor chooses.

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const SIGN = { auto: "◐", light: "☀", dark: "☾" };

function chosen() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto"; // storage is off
  }
}

function show(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = SIGN[theme];
  button.setAttribute("aria-label", `Colour theme: ${theme}`);
  button.title = `Colour theme: ${theme}`;
  document.dispatchEvent(new Event("themechange"));
}

let theme = chosen() in NEXT ? chosen() : "auto";
show(theme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(theme));
document.getElementById("theme").addEventListener("click", () => {
  theme = NEXT[theme];
  show(theme);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // it lasts until the page is closed
  }
});
