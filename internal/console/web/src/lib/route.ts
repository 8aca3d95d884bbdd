// The page that is shown is in the fragment of the address: #/clusters/member1?tab=ledger.

import { Value } from "./signal";

export interface Route {
  /** Parts of the path, decoded. */
  parts: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter((part) => part !== "").map(decode), query: new URLSearchParams(query) };
}

/** decode returns what is not encoded as it is. */
export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Value<Route>(read());
addEventListener("hashchange", () => route.set(read()));

/** rewrite replaces the address, without an entry in the history. */
export function rewrite(address: string): void {
  history.replaceState(null, "", address);
  route.set(read());
}

/** href returns the address of a page. */
export function href(parts: string[], query: Record<string, string | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) parameters.set(key, value);
  const text = parameters.toString();
  return "#/" + parts.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

export function go(parts: string[], query: Record<string, string | undefined> = {}): void {
  location.hash = href(parts, query);
}

/** replaceQuery changes parameters of the page without a new entry in the history. */
export function replaceQuery(changes: Record<string, string | undefined>): void {
  const { parts, query } = route.get();
  const all: Record<string, string | undefined> = Object.fromEntries(query);
  rewrite(href(parts, { ...all, ...changes }));
}
