// Long lists as the tables that the API makes of them, page by page. What is far from the screen is forgotten and read again when it is needed.

import { Backoff, rest, signedIn } from "./backoff";
import { lines } from "./collection";
import { ApiError, fromFailure } from "./errors";
import { request, send } from "./http";
import type { KubeObject, Metadata } from "./kube";
import { session } from "./session";

export const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

interface Answer {
  kind?: string;
  metadata?: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  columnDefinitions?: { name: string; priority?: number }[];
  rows?: { cells?: unknown[]; object?: KubeObject }[];
}

export interface Row {
  metadata: Metadata;
  cells: unknown[];
}

interface Page {
  token: string;
  count: number;
  rows?: Row[];
  reading?: boolean;
  /** When it was on the screen last, as a counter. */
  used: number;
}

export interface PagesOptions {
  path: string;
  query: Record<string, string>;
  /** match keeps some rows. The server cannot search for a part of a name, so all rows before the last match are read. */
  match?: (row: Row) => boolean;
}

/** The first page is small, so that it comes at once. */
const firstPage = 100;
const pageSize = 500;
const keptPages = 16;
/** Browsers cannot draw much higher elements, and nobody scrolls further. */
const mostRows = 400_000;
/** So many rows are looked through for a part of a name before the user is asked. */
const searchAtOnce = 5_000;
/** A complete list of at most so many rows is followed. */
const mostFollowed = 1_500;
const watchSeconds = 270;
/** A watch that has not ended so long after its time is dead. */
const overdue = 30_000;
/** A watch that ends so soon without an event has not worked. */
const tooShort = 1_000;

export class Pages {
  columns: string[] = [];
  /** The columns that the server finds most important. */
  primary: string[] = [];
  /** Rows before the next page. */
  length = 0;
  /** How many rows were looked at. */
  seen = 0;
  /** There are no further pages. */
  complete = false;
  loaded = false;
  error?: ApiError;
  /** How many rows the server knows beyond those that were read. */
  remaining?: number;
  /** When the first page was read. */
  at = 0;
  following = false;
  /** A search has stopped, and goes on when the user asks for it. */
  halted = false;

  private pages: Page[] = [];
  private next: string | undefined = "";
  private version = "";
  private clock = 0;
  private limit = searchAtOnce;
  private control = new AbortController();
  private listeners = new Set<() => void>();
  private busy = false;
  private generation = 0;
  private backoff = new Backoff();
  /** Before this time nothing is asked for, by whoever wants it. */
  private notBefore = 0;

  constructor(private readonly options: PagesOptions) {}

  get(): number {
    return this.generation;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private changed(): void {
    this.generation++;
    for (const listener of [...this.listeners]) listener();
  }

  close(): void {
    this.control.abort();
  }

  /** restart reads everything again. What is shown stays until the first page has come. */
  restart(): void {
    this.backoff.reset();
    this.notBefore = 0;
    this.begin();
  }

  /** renew restarts after a pause: the server has forgotten the state that was read. */
  private renew(): void {
    this.notBefore = Date.now() + this.backoff.after();
    this.begin();
  }

  private begin(): void {
    this.control.abort();
    this.control = new AbortController();
    this.next = "";
    this.busy = false;
    this.following = false;
    this.complete = false;
    this.halted = false;
    this.limit = searchAtOnce;
    this.later(() => void this.more());
  }

  /** later does something as soon as anything may be asked for. */
  private later(what: () => void): void {
    const signal = this.control.signal;
    void (async () => {
      while (!signal.aborted && Date.now() < this.notBefore) {
        if (this.notBefore === Infinity) return;
        await rest(this.notBefore - Date.now(), signal);
      }
      await signedIn(signal);
      if (!signal.aborted) what();
    })();
  }

  /** waiting tells whether nothing may be asked for yet. */
  private get waiting(): boolean {
    return Date.now() < this.notBefore || session.get().state !== "in";
  }

  /** goOn looks through further rows. */
  goOn(): void {
    this.halted = false;
    this.limit = this.seen + 4 * searchAtOnce;
    void this.more();
  }

  get capped(): boolean {
    return !this.complete && this.length >= mostRows;
  }

  /** show returns the rows of a range, undefined for those that are being read, and reads what is missing. */
  show(from: number, to: number): (Row | undefined)[] {
    const shown: (Row | undefined)[] = [];
    let start = 0;
    this.clock++;
    for (const page of this.pages) {
      const end = start + page.count;
      if (end > from && start < to) {
        page.used = this.clock;
        if (!page.rows) void this.again(page);
        for (let i = Math.max(from, start); i < Math.min(to, end); i++) shown.push(page.rows?.[i - start]);
      }
      if (start >= to) break;
      start = end;
    }
    if (to >= this.length - 50 && this.loaded) void this.more();
    return shown;
  }

  /** more reads the next page. */
  async more(): Promise<void> {
    if (this.waiting || this.busy || this.next === undefined || this.halted || this.length >= mostRows) return;
    this.busy = true;
    const signal = this.control.signal;
    try {
      do {
        const token: string = this.next;
        const answer = await this.read(token, token === "" ? firstPage : pageSize, signal);
        if (signal.aborted) return;
        if (token === "") {
          this.pages = [];
          this.length = 0;
          this.seen = 0;
          this.at = Date.now();
          this.version = answer.metadata?.resourceVersion ?? "";
          this.columns = (answer.columnDefinitions ?? []).map((c) => c.name);
          this.primary = (answer.columnDefinitions ?? []).filter((c) => !c.priority).map((c) => c.name);
        }
        const all = rowsOf(answer);
        const rows = this.options.match ? all.filter(this.options.match) : all;
        this.seen += all.length;
        this.pages.push({ token, count: rows.length, rows, used: this.clock });
        this.length += rows.length;
        this.next = answer.metadata?.continue || undefined;
        this.remaining = answer.metadata?.remainingItemCount;
        this.complete = this.next === undefined;
        this.loaded = true;
        this.error = undefined;
        // A list that was begun anew is no success yet: that of its watch is.
        if (token !== "") this.backoff.reset();
        this.forget();
        if (this.options.match && !this.complete && this.seen >= this.limit) this.halted = true;
        this.changed();
        // Without a match the screen may still be empty.
      } while (this.options.match && this.next !== undefined && !this.halted && this.length < mostRows);
      if (this.complete && this.seen <= mostFollowed) void this.follow(signal);
    } catch (cause) {
      this.failed(cause, signal, () => void this.more());
    } finally {
      if (!signal.aborted) this.busy = false;
    }
  }

  private failed(cause: unknown, signal: AbortSignal, again: () => void): void {
    if (signal.aborted) return;
    const error = fromFailure(cause);
    if (error.status === 410) {
      // The pages are of a state that the server has forgotten.
      this.renew();
      return;
    }
    this.error = error;
    if (error.status === 400) {
      this.notBefore = Infinity; // until another list is wanted
    } else {
      this.notBefore = Date.now() + this.backoff.after(error);
      this.later(again);
    }
    this.changed();
  }

  private read(token: string, limit: number, signal: AbortSignal): Promise<Answer> {
    return request<Answer>(this.options.path, { accept: asTable, query: { ...this.options.query, limit, continue: token }, signal });
  }

  private async again(page: Page): Promise<void> {
    if (this.waiting || page.reading) return;
    page.reading = true;
    const signal = this.control.signal;
    try {
      const answer = await this.read(page.token, page.token === "" ? firstPage : pageSize, signal);
      if (signal.aborted) return;
      const rows = rowsOf(answer).filter(this.options.match ?? (() => true));
      this.length += rows.length - page.count;
      page.count = rows.length;
      page.rows = rows;
      this.error = undefined;
      this.backoff.reset();
      this.forget();
      this.changed();
    } catch (cause) {
      this.failed(cause, signal, () => void this.again(page));
    } finally {
      page.reading = false;
    }
  }

  /** forget drops the pages that were on the screen longest ago. */
  private forget(): void {
    const held = this.pages.filter((page) => page.rows);
    if (held.length <= keptPages) return;
    held.sort((a, b) => a.used - b.used);
    for (const page of held.slice(0, held.length - keptPages)) page.rows = undefined;
  }

  /** follow applies changes to a list that is complete. */
  private async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const stream = new AbortController();
      const both = AbortSignal.any([signal, stream.signal]);
      const late = setTimeout(() => stream.abort(), watchSeconds * 1000 + overdue);
      // A stream that is open has the rights of the token before.
      const unsubscribe = session.subscribe(() => session.get().state === "in" && stream.abort());
      const began = Date.now();
      let events = 0;
      let pause = 0;
      try {
        const answer = await send(this.options.path, { accept: asTable, timeout: 0, signal: both, query: { ...this.options.query, watch: true, resourceVersion: this.version, allowWatchBookmarks: true, timeoutSeconds: watchSeconds } });
        this.following = true;
        this.changed();
        for await (const line of lines(answer, both)) {
          if (both.aborted) break;
          if (!this.apply(JSON.parse(line) as { type: string; object: Answer & Partial<KubeObject> & { code?: number } })) return this.renew();
          events++;
          this.backoff.reset();
        }
        if (!both.aborted && events === 0 && Date.now() - began < tooShort) pause = this.backoff.after();
      } catch (cause) {
        if (signal.aborted) return;
        if (!stream.signal.aborted) {
          this.following = false;
          this.changed();
          const error = fromFailure(cause);
          if (error.status === 410) return this.renew();
          if (error.status === 403 || error.status === 404 || error.status === 400) return;
          pause = this.backoff.after(error);
        }
      } finally {
        clearTimeout(late);
        unsubscribe();
      }
      await rest(pause, signal);
      await signedIn(signal);
    }
  }

  private apply(event: { type: string; object: Answer & Partial<KubeObject> & { code?: number } }): boolean {
    if (event.type === "ERROR") return false;
    const row = rowsOf(event.object)[0];
    this.version = row?.metadata.resourceVersion ?? event.object.metadata?.resourceVersion ?? this.version;
    if (event.type === "BOOKMARK" || !row) return true;
    const key = keyOf(row);
    for (const page of this.pages) {
      const at = page.rows?.findIndex((r) => keyOf(r) === key) ?? -1;
      if (at < 0) continue;
      page.rows = [...page.rows!];
      if (event.type === "DELETED") page.rows.splice(at, 1);
      else page.rows[at] = row;
      this.count();
      return true;
    }
    if (event.type === "DELETED" || (this.options.match && !this.options.match(row))) return true;
    const last = this.pages.at(-1);
    if (!last?.rows) return false;
    // Rows are in the order of their names.
    const page = this.pages.find((p) => p.rows?.length && order(row, p.rows.at(-1)!) < 0) ?? last;
    const at = page.rows!.findIndex((r) => order(row, r) < 0);
    page.rows = [...page.rows!];
    page.rows.splice(at < 0 ? page.rows.length : at, 0, row);
    this.count();
    return this.length <= 2 * mostFollowed;
  }

  private count(): void {
    for (const page of this.pages) if (page.rows) page.count = page.rows.length;
    this.length = this.pages.reduce((n, page) => n + page.count, 0);
    this.seen = Math.max(this.seen, this.length);
    this.changed();
  }
}

function rowsOf(answer: Answer): Row[] {
  return (answer.rows ?? []).map((row) => ({ metadata: row.object?.metadata ?? {}, cells: row.cells ?? [] }));
}

function keyOf(row: Row): string {
  return `${row.metadata.namespace ?? ""}/${row.metadata.name ?? ""}`;
}

function order(a: Row, b: Row): number {
  const [x, y] = [keyOf(a).replace("/", "\u0000"), keyOf(b).replace("/", "\u0000")];
  return x < y ? -1 : x > y ? 1 : 0;
}
