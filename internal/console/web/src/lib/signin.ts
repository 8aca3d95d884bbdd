// The ways to sign in: a client certificate, a token, and OpenID Connect.

import { ApiError, fromFailure } from "./errors";
import { request } from "./http";
import { rewrite } from "./route";
import { session, setToken, type User } from "./session";

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

/** withToken signs in with a token. */
export async function withToken(text: string, by: "token" | "issuer" = "token"): Promise<void> {
  const token = text.trim();
  if (!/^[\x21-\x7e]+$/.test(token)) throw new ApiError(0, "Invalid", "This is not a token: a token is one word of plain letters.");
  const before = session.get();
  setToken(token);
  try {
    const user = await whoAmI();
    if (before.state === "expired" && before.user.name !== user.name) {
      // What is on the screen was read with the rights of somebody else.
      location.hash = "#/";
    }
    session.set({ state: "in", user, by });
  } catch (cause) {
    setToken(null);
    throw refusal(cause);
  }
}

/** withCertificate signs in if the browser has shown a client certificate that the gateway accepts. */
export async function withCertificate(): Promise<boolean> {
  try {
    session.set({ state: "in", user: await whoAmI(), by: "certificate" });
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
  return decodeURIComponent(match[1]!);
}
