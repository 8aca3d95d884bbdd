// Who is signed in. The token is in the memory of this page only: a reload forgets it.

import { Value } from "./signal";

export interface User {
  name: string;
  groups: string[];
}

export type Session =
  | { state: "starting" }
  | { state: "out"; why?: string }
  /** A link has brought a token, and the user is asked whether to use it. */
  | { state: "offered"; user: User }
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

const forgetters: (() => void)[] = [];

/** onOtherUser calls back when somebody else has signed in, before anything is shown to them. What was read for the first user is forgotten then. */
export function onOtherUser(forget: () => void): void {
  forgetters.push(forget);
}

/** enter begins the session of a user, and returns whether another user was signed in before. */
export function enter(user: User, by: "token" | "certificate" | "issuer"): boolean {
  const before = session.get();
  const other = (before.state === "expired" || before.state === "in") && before.user.name !== user.name;
  if (other) for (const forget of forgetters) forget();
  session.set({ state: "in", user, by });
  return other;
}

/** expired is called when an answer is 401. used is the token of that request. */
export function expired(used: string | null): void {
  const now = session.get();
  if (now.state === "in" && used === secret) session.set({ state: "expired", user: now.user });
}

/** signOut forgets the token and everything that was read with it. */
export function signOut(): void {
  secret = null;
  location.hash = "";
  location.reload();
}
