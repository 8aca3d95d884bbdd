// Whether the gateway answers, how fast, and when collections should try again at once.

import { fromFailure } from "./errors";
import { send } from "./http";
import { Value } from "./signal";

export interface Connection {
  state: "connecting" | "up" | "down";
  /** Since when the gateway has not answered. */
  since?: number;
  /** Round trips of the last pings in milliseconds, the newest last. */
  latencies: number[];
}

export const connection = new Value<Connection>({ state: "connecting", latencies: [] });

const interval = 10_000;
const patience = 5_000;
const kept = 60;

const wakers = new Set<(reconnect: boolean) => void>();

/**
 * onWake calls back when it is worth trying again at once: the page is visible again, the network is back, the gateway answers again.
 * reconnect says that streams which seem open are probably dead.
 */
export function onWake(callback: (reconnect: boolean) => void): () => void {
  wakers.add(callback);
  return () => wakers.delete(callback);
}

function wake(reconnect: boolean): void {
  for (const callback of [...wakers]) callback(reconnect);
}

let running: AbortController | undefined;

/** ping asks the gateway whether it lives. It needs no rights. */
export async function ping(): Promise<void> {
  running?.abort();
  const control = (running = new AbortController());
  const began = performance.now();
  const before = connection.get();
  try {
    await (await send("/livez", { accept: "*/*", timeout: patience, signal: control.signal })).text();
    const took = performance.now() - began;
    connection.set({ state: "up", latencies: [...before.latencies, took].slice(-kept) });
    if (before.state === "down") wake(true);
  } catch (cause) {
    if (control.signal.aborted) return;
    const error = fromFailure(cause);
    // A load balancer answers for a gateway that is away, and a gateway that is not well says so.
    if (error.unreachable || error.status >= 500) {
      connection.set({ state: "down", since: before.since ?? Date.now(), latencies: before.latencies });
      return;
    }
    connection.set({ state: "up", latencies: before.latencies });
    if (before.state === "down") wake(true);
  }
}

/** failed is called when a stream has broken: the next ping tells whether the gateway is the reason. */
export function failed(): void {
  if (connection.get().state === "up") void ping();
}

let last = Date.now();

/** keepConnected pings the gateway while the page is visible. */
export function keepConnected(): void {
  void ping();
  setInterval(() => {
    const gap = Date.now() - last;
    last = Date.now();
    // The machine slept: streams that seem open are not.
    if (gap > 3 * interval && !document.hidden) wake(true);
    if (!document.hidden) void ping();
  }, interval);
  const again = () => {
    if (document.hidden) return;
    const gap = Date.now() - last;
    void ping();
    wake(gap > 3 * interval);
    last = Date.now();
  };
  document.addEventListener("visibilitychange", again);
  addEventListener("pageshow", again);
  addEventListener("online", () => {
    void ping();
    wake(true);
  });
}
