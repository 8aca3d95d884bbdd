// The ways to sign in: a client certificate, a token, and OpenID Connect.

import { ApiError, fromFailure } from "./errors";
import { request } from "./http";
import { decode, rewrite } from "./route";
import { enter, session, setToken, type User } from "./session";

interface Review {
  status?: { userInfo?: { username?: string; groups?: string[] } };
}

async function whoAmI(): Promise<User> {
  const review = await request<Review>("/apis/authentication.k8s.io/v1/selfsubjectreviews", {
    method: "POST",
    body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" },
  });
  const user = review.status?.userInfo;
  if (!user?.username || user.username === "system:anonymous") throw new ApiError(401, "Unauthorized", "The gateway does not know you.");
  return { name: user.username, groups: user.groups ?? [] };
}

/** begin begins a session. What is on the screen may have been read with the rights of somebody else. */
function begin(user: User, by: "token" | "certificate" | "issuer"): void {
  if (enter(user, by)) rewrite(location.pathname + "#/");
}

/** userOf uses a token from now on, and returns whose it is. */
async function userOf(text: string): Promise<User> {
  const token = text.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) throw new ApiError(0, "Invalid", "This is not a token: a token is one word of plain letters.");
  setToken(token);
  try {
    return await whoAmI();
  } catch (cause) {
    setToken(null);
    throw refusal(cause);
  }
}

/** withToken signs in with a token. */
export async function withToken(text: string, by: "token" | "issuer" = "token"): Promise<void> {
  begin(await userOf(text), by);
}

let offered: { user: User; token: string } | undefined;

/**
 * withLink signs in with the token of a link. Anybody can make a link with a token of their own, and would see what is done with it: the
 * user is asked first. On this machine, `cellplane console` has made it.
 */
export async function withLink(token: string): Promise<void> {
  if (loopback(location.hostname)) return withToken(token);
  const user = await userOf(token);
  setToken(null);
  offered = { user, token: token.trim() };
  session.set({ state: "offered", user });
}

/** accept signs in with the token of the link. */
export function accept(): void {
  if (!offered) return;
  setToken(offered.token);
  begin(offered.user, "token");
  offered = undefined;
}

/** decline forgets the token of the link. */
export function decline(): void {
  offered = undefined;
  session.set({ state: "out" });
}

function loopback(host: string): boolean {
  return host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host) || /(^|\.)localhost$/.test(host);
}

/** withCertificate signs in if the browser has shown a client certificate that the gateway accepts. */
export async function withCertificate(): Promise<boolean> {
  setToken(null); // one that has expired would be refused
  try {
    begin(await whoAmI(), "certificate");
    return true;
  } catch (cause) {
    const error = fromFailure(cause);
    if (error.status === 401 || error.status === 403) return false;
    throw error;
  }
}

function refusal(cause: unknown): ApiError {
  const error = fromFailure(cause);
  return error.status === 401 ? new ApiError(401, "Unauthorized", "The gateway does not accept this token. It may have expired: get a new one.") : error;
}

/** fromFragment takes a token out of the address, and out of the history, before anything else happens. */
export function fromFragment(): string | null {
  const match = /^#token=([^&]+)$/.exec(location.hash);
  if (!match) return null;
  rewrite(location.pathname + "#/");
  return decode(match[1]!);
}
