// Light or dark: what the machine prefers, unless the user has chosen.

import { Value } from "../lib/signal";

export type Theme = "auto" | "light" | "dark";

const key = "cellplane-theme";

function kept(): Theme {
  const value = localStorage.getItem(key);
  return value === "light" || value === "dark" ? value : "auto";
}

export const theme = new Value<Theme>(kept());

function apply(): void {
  const now = theme.get();
  if (now === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = now;
}
apply();

export function switchTheme(): void {
  const next: Theme = { auto: "light", light: "dark", dark: "auto" }[theme.get()] as Theme;
  theme.set(next);
  if (next === "auto") localStorage.removeItem(key);
  else localStorage.setItem(key, next);
  apply();
}
