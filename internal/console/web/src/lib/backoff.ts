// Pauses between attempts, the same for all that is read again by itself.

import type { ApiError } from "./errors";
import { session } from "./session";

const first = 500;
const longest = 30_000;

export class Backoff {
  private pause = first;

  /** after returns for how many milliseconds nothing is asked for after a failure. */
  after(error?: ApiError): number {
    const refused = error?.status === 403 || error?.status === 404;
    const pause = Math.max(refused ? longest : this.pause * (0.8 + 0.4 * Math.random()), (error?.retryAfter ?? 0) * 1000);
    this.pause = Math.min(this.pause * 2, longest);
    return pause;
  }

  /** reset is called when something has succeeded. */
  reset(): void {
    this.pause = first;
  }
}

/** rest waits. It ends early if the signal aborts, or by the function that it tells. */
export function rest(milliseconds: number, signal: AbortSignal, tell?: (wake: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
    tell?.(end);
    if (signal.aborted) end();
  });
}

/** signedIn waits until the gateway knows the user, or the signal aborts. */
export function signedIn(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (session.get().state !== "in" && !signal.aborted) return;
      unsubscribe();
      signal.removeEventListener("abort", check);
      resolve();
    };
    const unsubscribe = session.subscribe(check);
    signal.addEventListener("abort", check);
    check();
  });
}
