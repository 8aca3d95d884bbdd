// OpenID Connect: the authorization code flow with PKCE, as a public client.

import { ApiError, sentence } from "./errors";
import { base } from "./http";
import { rewrite } from "./route";
import { withToken } from "./signin";

export interface Issuer {
  issuer: string;
  clientID: string;
}

interface Discovery {
  issuer: string;
  authorization_endpoint: string;
  token_endpoint: string;
  scopes_supported?: string[];
}

/** What the page remembers while it is at the issuer. It holds no token. */
interface Pending extends Issuer {
  state: string;
  nonce: string;
  verifier: string;
  redirect: string;
  tokenEndpoint: string;
  hash: string;
}

const pendingKey = "cellplane-signing-in";

/** issuers returns the issuers that the gateway trusts. */
export async function issuers(): Promise<Issuer[]> {
  try {
    const answer = await fetch(base + "/console/config.json", { cache: "no-store", credentials: "omit" });
    if (!answer.ok) return [];
    return ((await answer.json()) as { issuers?: Issuer[] }).issuers ?? [];
  } catch {
    return [];
  }
}

/** toIssuer leaves for the issuer, which sends the user back here. */
export async function toIssuer(issuer: Issuer): Promise<void> {
  const found = await discover(issuer);
  const pending: Pending = {
    ...issuer,
    state: random(),
    nonce: random(),
    verifier: random(),
    redirect: location.origin + location.pathname,
    tokenEndpoint: found.token_endpoint,
    hash: location.hash,
  };
  sessionStorage.setItem(pendingKey, JSON.stringify(pending));
  const scopes = ["openid", "profile", "email", "groups"].filter((s) => s === "openid" || !found.scopes_supported || found.scopes_supported.includes(s));
  const address = new URL(found.authorization_endpoint);
  if (address.protocol !== "https:") throw new ApiError(0, "Insecure", "The issuer asks for passwords without https, which this page does not do.");
  for (const [key, value] of Object.entries({
    response_type: "code",
    client_id: issuer.clientID,
    redirect_uri: pending.redirect,
    scope: scopes.join(" "),
    state: pending.state,
    nonce: pending.nonce,
    code_challenge: await digest(pending.verifier),
    code_challenge_method: "S256",
  })) address.searchParams.set(key, value);
  location.assign(address.href);
}

/** fromIssuer continues when the issuer has sent the user back. It returns whether it has. */
export async function fromIssuer(): Promise<boolean> {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("state")) return false;
  const pending = JSON.parse(sessionStorage.getItem(pendingKey) ?? "null") as Pending | null;
  sessionStorage.removeItem(pendingKey);
  // The code leaves the address, and the history.
  rewrite(location.pathname + (pending?.hash || "#/"));
  if (!pending || answer.get("state") !== pending.state) {
    throw new ApiError(0, "State", "This sign-in was not begun in this tab, or was used already: begin again.");
  }
  const failure = answer.get("error");
  if (failure) throw new ApiError(0, failure, sentence("The issuer refused: " + (answer.get("error_description") || failure)));
  const iss = answer.get("iss");
  if (iss && iss !== pending.issuer) throw new ApiError(0, "Issuer", "The answer comes from another issuer: begin again.");
  const tokens = await ask<{ id_token?: string; error_description?: string; error?: string }>(pending.tokenEndpoint, {
    method: "POST",
    body: new URLSearchParams({
      grant_type: "authorization_code",
      code: answer.get("code") ?? "",
      redirect_uri: pending.redirect,
      client_id: pending.clientID,
      code_verifier: pending.verifier,
    }),
  });
  if (!tokens.id_token) throw new ApiError(0, "Token", sentence("The issuer gave no token: " + (tokens.error_description || tokens.error || "it said no reason")));
  const claims = decode(tokens.id_token);
  if (claims.nonce !== pending.nonce) throw new ApiError(0, "Nonce", "The token belongs to another sign-in: begin again.");
  await withToken(tokens.id_token, "issuer");
  return true;
}

async function discover(issuer: Issuer): Promise<Discovery> {
  const found = await ask<Discovery>(issuer.issuer.replace(/\/$/, "") + "/.well-known/openid-configuration");
  if (found.issuer !== issuer.issuer) throw new ApiError(0, "Issuer", `The issuer calls itself ${found.issuer}, and the gateway knows it as ${issuer.issuer}.`);
  return found;
}

async function ask<T>(address: string, options: RequestInit = {}): Promise<T> {
  try {
    return (await (await fetch(address, { ...options, credentials: "omit", signal: AbortSignal.timeout(20_000) })).json()) as T;
  } catch {
    throw new ApiError(0, "Unreachable", `${new URL(address).origin} does not answer this page. Does it allow this origin (CORS), and is it up?`);
  }
}

function decode(token: string): { nonce?: string } {
  try {
    const part = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0)))) as { nonce?: string };
  } catch {
    return {};
  }
}

function random(): string {
  return encode(crypto.getRandomValues(new Uint8Array(32)));
}

async function digest(text: string): Promise<string> {
  return encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

function encode(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
