// Collections that follow the gateway: a list, and then a watch that resumes where it ended.

import { useMemo } from "preact/hooks";

import { Backoff, rest, signedIn } from "./backoff";
import { failed, onWake } from "./connection";
import { ApiError, fromAnswer, fromFailure } from "./errors";
import { request, send, type RequestOptions } from "./http";
import type { KubeList, KubeObject } from "./kube";
import { onOtherUser, session } from "./session";
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
/** A watch that has not ended so long after its time is dead. */
const overdue = 30_000;
/** A watch that ends so soon without an event has not worked. */
const tooShort = 1_000;
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
  private backoff = new Backoff();
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

  /** end forgets everything, for good. */
  end(): void {
    this.running ??= new AbortController(); // it does not begin again
    this.running.abort();
    clearTimeout(this.publishing);
    this.objects.clear();
    this.set({ items: [], loaded: false });
  }

  /** run lists and watches until nobody needs the collection any more. */
  private async run(signal: AbortSignal): Promise<void> {
    const wake = (reconnect: boolean) => {
      this.backoff.reset();
      this.wakeUp?.();
      if (reconnect) this.stream?.abort();
    };
    const forgetWakes = onWake(wake);
    // Streams that are open have the rights of the token before.
    const forgetSession = session.subscribe(() => session.get().state === "in" && wake(true));
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
    if (signal.aborted) return;
    this.objects = read;
    this.version = version;
    this.publish();
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const stream = (this.stream = new AbortController());
    const both = AbortSignal.any([signal, stream.signal]);
    const seconds = watchSeconds + Math.floor(Math.random() * 30);
    const query: RequestOptions["query"] = {
      ...this.query,
      watch: true,
      allowWatchBookmarks: true,
      resourceVersion: this.version,
      timeoutSeconds: seconds,
    };
    const began = Date.now();
    let events = 0;
    const late = setTimeout(() => stream.abort(), seconds * 1000 + overdue);
    try {
      const answer = await send(this.path, { query, signal: both, timeout: 0 });
      this.fresh();
      for await (const line of lines(answer, both)) {
        if (both.aborted) return;
        this.apply(JSON.parse(line) as WatchEvent);
        events++;
        this.backoff.reset();
      }
    } catch (cause) {
      if (signal.aborted || !stream.signal.aborted) throw cause;
      return; // somebody has asked for a new stream, or this one was dead
    } finally {
      clearTimeout(late);
    }
    if (events === 0 && Date.now() - began < tooShort) await this.rest(this.backoff.after(), signal);
  }

  /** rest waits, unless something happens that makes it worth trying again at once. */
  private async rest(pause: number, signal: AbortSignal): Promise<void> {
    await rest(pause, signal, (wake) => (this.wakeUp = wake));
    this.wakeUp = undefined;
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
      return this.rest(this.backoff.after(), signal);
    }
    if (error.unreachable) failed();
    this.set({ ...this.snapshot, error, staleSince: this.snapshot.staleSince ?? (this.snapshot.loaded ? Date.now() : undefined) });
    await this.rest(this.backoff.after(error), signal);
    await signedIn(signal);
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

// What one user has read is not for another.
onOtherUser(() => {
  const all = [...collections.values()];
  collections.clear();
  for (const one of all) one.end();
});

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
