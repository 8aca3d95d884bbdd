// Requests to the gateway, with the credentials of the user.

import { ApiError, fromAnswer, fromFailure } from "./errors";
import { expired, token } from "./session";

export interface RequestOptions {
  method?: string;
  body?: unknown;
  /** contentType of the body; application/json unless it is given. A body with another type is text. */
  contentType?: string;
  accept?: string;
  query?: Record<string, string | number | boolean | undefined>;
  signal?: AbortSignal;
  /** timeout in milliseconds; 0 for none. */
  timeout?: number;
}

/** base is the address of the gateway's API: that of the page without /console/. */
export const base = location.pathname.replace(/\/console\/.*$/, "");

export function url(path: string, query?: RequestOptions["query"]): string {
  // API servers indent what they send to browsers, which doubles it.
  const parameters = new URLSearchParams(/\/apis?\//.test(path) ? { pretty: "false" } : {});
  for (const [key, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== "" && value !== false) parameters.set(key, String(value));
  }
  const text = parameters.toString();
  return base + path + (text ? "?" + text : "");
}

/** send returns the answer if it is a success, and throws an ApiError otherwise. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  const secret = token();
  if (secret) headers["Authorization"] = "Bearer " + secret;
  let body: string | undefined;
  if (options.body !== undefined) {
    headers["Content-Type"] = options.contentType ?? "application/json";
    body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
  }
  const timeout = options.timeout ?? 30_000;
  const signals = [options.signal, timeout > 0 ? AbortSignal.timeout(timeout) : undefined].filter((s) => s !== undefined);
  let answer: Response;
  try {
    answer = await fetch(url(path, options.query), {
      method: options.method ?? "GET",
      headers,
      body,
      signal: signals.length > 0 ? AbortSignal.any(signals) : undefined,
      cache: "no-store",
      redirect: "error",
      credentials: "same-origin", // a client certificate
    });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw fromFailure(cause);
  }
  if (answer.ok) return answer;
  const error = fromAnswer(answer.status, await answer.text().catch(() => ""), answer.headers.get("Retry-After"));
  if (error.status === 401) expired(secret);
  throw error;
}

/** request returns the object of the answer. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const answer = await send(path, options);
  try {
    return (await answer.json()) as T;
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new ApiError(0, "Unreadable", "The answer of the gateway ended early or is not JSON.");
  }
}

/** text returns the text of the answer. */
export async function text(path: string, options: RequestOptions = {}): Promise<string> {
  return (await send(path, { accept: "*/*", ...options })).text();
}
