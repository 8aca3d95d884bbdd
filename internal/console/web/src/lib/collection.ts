// Collections that follow the gateway: a list, and then a watch that resumes where it ended.

import { useMemo } from "preact/hooks";

import { failed, onWake } from "./connection";
import { ApiError, fromAnswer, fromFailure } from "./errors";
import { request, send, type RequestOptions } from "./http";
import type { KubeList, KubeObject } from "./kube";
import { session } from "./session";
import { useValue } from "./signal";

export interface Snapshot<T> {
  items: T[];
  /** The list has been read once. Before, items says nothing. */
  loaded: boolean;
  /** Why there is nothing newer. */
  error?: ApiError;
  /** Since when the items may be out of date. */
  staleSince?: number;
}

interface WatchEvent {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: KubeObject & { code?: number; reason?: string; message?: string };
}

/** A watch that the gateway ends after this many seconds goes on with a new one. */
const watchSeconds = 270;
const firstPause = 500;
const longestPause = 30_000;
/** Changes that come together are shown together. */
const settle = 60;
/** A collection that nobody shows any more is kept so long, so that going back is instant. */
const linger = 30_000;
const pageSize = 500;

export class Collection<T extends KubeObject> {
  private objects = new Map<string, T>();
  private snapshot: Snapshot<T> = { items: [], loaded: false };
  private listeners = new Set<() => void>();
  private version = "";
  private pause = firstPause;
  private users = 0;
  private running?: AbortController;
  private stream?: AbortController;
  private wakeUp?: () => void;
  private leaving?: ReturnType<typeof setTimeout>;
  private publishing?: ReturnType<typeof setTimeout>;

  constructor(
    readonly path: string,
    readonly query: Record<string, string> = {},
  ) {}

  get(): Snapshot<T> {
    return this.snapshot;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    this.acquire();
    return () => {
      this.listeners.delete(listener);
      this.release();
    };
  }

  private set(next: Snapshot<T>): void {
    this.snapshot = next;
    for (const listener of [...this.listeners]) listener();
  }

  private acquire(): void {
    this.users++;
    clearTimeout(this.leaving);
    if (!this.running) {
      this.running = new AbortController();
      void this.run(this.running.signal);
    }
  }

  private release(): void {
    if (--this.users > 0) return;
    this.leaving = setTimeout(() => {
      this.running?.abort();
      this.running = undefined;
      forget(this as unknown as Collection<KubeObject>);
    }, linger);
  }

  /** run lists and watches until nobody needs the collection any more. */
  private async run(signal: AbortSignal): Promise<void> {
    const forgetWakes = onWake((reconnect) => {
      this.pause = firstPause;
      this.wakeUp?.();
      if (reconnect) this.stream?.abort();
    });
    const forgetSession = session.subscribe(() => this.wakeUp?.());
    try {
      while (!signal.aborted) {
        try {
          if (this.version === "") await this.list(signal);
          await this.watch(signal);
        } catch (cause) {
          if (signal.aborted) return;
          await this.recover(cause, signal);
        }
      }
    } finally {
      forgetWakes();
      forgetSession();
    }
  }

  private async list(signal: AbortSignal): Promise<void> {
    const read = new Map<string, T>();
    let next: string | undefined = "";
    let version = "";
    while (next !== undefined) {
      const page: KubeList<T> = await request<KubeList<T>>(this.path, { query: { ...this.query, limit: pageSize, continue: next }, signal });
      for (const item of page.items ?? []) read.set(keyOf(item), item);
      version = page.metadata.resourceVersion ?? "";
      next = page.metadata.continue || undefined;
    }
    this.objects = read;
    this.version = version;
    this.publish();
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const stream = (this.stream = new AbortController());
    const both = AbortSignal.any([signal, stream.signal]);
    const query: RequestOptions["query"] = {
      ...this.query,
      watch: true,
      allowWatchBookmarks: true,
      resourceVersion: this.version,
      timeoutSeconds: watchSeconds + Math.floor(Math.random() * 30),
    };
    try {
      const answer = await send(this.path, { query, signal: both, timeout: 0 });
      this.fresh();
      for await (const line of lines(answer, both)) {
        this.apply(JSON.parse(line) as WatchEvent);
        this.pause = firstPause;
      }
    } catch (cause) {
      if (signal.aborted || !stream.signal.aborted) throw cause;
      // Somebody has asked for a new stream.
    }
  }

  private apply(event: WatchEvent): void {
    if (event.type === "ERROR") {
      const { code = 500 } = event.object;
      throw fromAnswer(code, JSON.stringify({ ...event.object, kind: "Status" }), null);
    }
    this.version = event.object.metadata.resourceVersion ?? this.version;
    switch (event.type) {
      case "BOOKMARK":
        return;
      case "DELETED":
        this.objects.delete(keyOf(event.object));
        break;
      default:
        this.objects.set(keyOf(event.object), event.object as unknown as T);
    }
    this.publishing ??= setTimeout(() => this.publish(), settle);
  }

  private publish(): void {
    clearTimeout(this.publishing);
    this.publishing = undefined;
    const items = [...this.objects.values()].sort(byName);
    this.set({ ...this.snapshot, items, loaded: true });
  }

  /** fresh says that the collection follows the gateway again. */
  private fresh(): void {
    if (this.snapshot.error || this.snapshot.staleSince) this.set({ items: this.snapshot.items, loaded: this.snapshot.loaded });
  }

  /** recover says what is wrong, and waits until it is worth trying again. */
  private async recover(cause: unknown, signal: AbortSignal): Promise<void> {
    const error = fromFailure(cause);
    if (error.status === 410) {
      this.version = ""; // what is shown stays until it has been read again
      return;
    }
    if (error.unreachable) failed();
    const refused = error.status === 401 || error.status === 403 || error.status === 404;
    this.set({ ...this.snapshot, error, staleSince: this.snapshot.staleSince ?? (this.snapshot.loaded ? Date.now() : undefined) });
    const pause = Math.max(refused ? longestPause : this.pause * (0.8 + 0.4 * Math.random()), error.retryAfter * 1000);
    this.pause = Math.min(this.pause * 2, longestPause);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, pause);
      this.wakeUp = resolve;
      signal.addEventListener("abort", () => resolve(), { once: true });
      void timer;
    });
    this.wakeUp = undefined;
  }
}

/** lines yields the lines of a stream. It throws if the stream breaks. */
export async function* lines(answer: Response, signal: AbortSignal): AsyncGenerator<string> {
  const reader = answer.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) if (part !== "") yield part;
    }
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw fromFailure(cause);
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

export function keyOf(object: KubeObject): string {
  const { namespace, name, uid } = object.metadata;
  // Objects of members may have the same name in several members.
  return `${namespace ?? ""}/${name ?? ""}/${uid ?? ""}`;
}

function byName(a: KubeObject, b: KubeObject): number {
  return compare(a.metadata.namespace ?? "", b.metadata.namespace ?? "") || compare(a.metadata.name ?? "", b.metadata.name ?? "");
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const collections = new Map<string, Collection<KubeObject>>();

function forget(collection: Collection<KubeObject>): void {
  for (const [key, value] of collections) if (value === collection) collections.delete(key);
}

/** collection returns the one collection of a path and its query. */
export function collection<T extends KubeObject>(path: string, query: Record<string, string> = {}): Collection<T> {
  const key = path + "?" + new URLSearchParams(query).toString();
  let found = collections.get(key);
  if (!found) {
    found = new Collection<KubeObject>(path, query);
    collections.set(key, found);
  }
  return found as unknown as Collection<T>;
}

/** every returns all collections that are followed. */
export function every(): Iterable<Collection<KubeObject>> {
  return collections.values();
}

/** useCollection follows the objects of a path while a page is shown. */
export function useCollection<T extends KubeObject>(path: string, query: Record<string, string> = {}): Snapshot<T> {
  const text = JSON.stringify(query);
  return useValue(useMemo(() => collection<T>(path, query), [path, text]));
}

/** escaped returns a value for a field selector. */
export function escaped(value: string): string {
  return value.replace(/[\\,=]/g, "\\$&");
}

/** useObject follows one object; undefined until it is known, null if there is none. */
export function useObject<T extends KubeObject>(path: string, name: string): { object: T | undefined | null; snapshot: Snapshot<T> } {
  const snapshot = useCollection<T>(path, { fieldSelector: "metadata.name=" + escaped(name) });
  const object = snapshot.items[0];
  return { object: object ?? (snapshot.loaded ? null : undefined), snapshot };
}
