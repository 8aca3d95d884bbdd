// Who is signed in. The token is in the memory of this page only: a reload forgets it.

import { Value } from "./signal";

export interface User {
  name: string;
  groups: string[];
}

export type Session =
  | { state: "starting" }
  | { state: "out"; why?: string }
  | { state: "in"; user: User; by: "token" | "certificate" | "issuer" }
  /** The gateway has stopped accepting the token. What is shown stays, and a new token continues it. */
  | { state: "expired"; user: User };

export const session = new Value<Session>({ state: "starting" });

let secret: string | null = null;

export function token(): string | null {
  return secret;
}

export function setToken(value: string | null): void {
  secret = value;
}

/** expired is called when an answer is 401. */
export function expired(): void {
  const now = session.get();
  if (now.state === "in") session.set({ state: "expired", user: now.user });
}

/** signOut forgets the token and everything that was read with it. */
export function signOut(): void {
  secret = null;
  location.hash = "";
  location.reload();
}
