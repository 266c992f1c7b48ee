// Light or dark: as the system says, until the visitor chooses.
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

export function switchTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(isDark ? "light" : "dark");
}

export function restoreTheme() {
  const theme = localStorage.getItem("theme");
  if (theme) setTheme(theme);
}
