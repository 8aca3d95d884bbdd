// A value that pages can follow.

import { useEffect, useReducer } from "preact/hooks";

export class Value<T> {
  private listeners = new Set<() => void>();

  constructor(private current: T) {}

  get(): T {
    return this.current;
  }

  set(next: T): void {
    if (Object.is(next, this.current)) return;
    this.current = next;
    for (const listener of [...this.listeners]) listener();
  }

  /** followed tells whether anybody looks at it. */
  get followed(): boolean {
    return this.listeners.size > 0;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export interface Followed<T> {
  get(): T;
  subscribe(listener: () => void): () => void;
}

/** useValue returns a value and renders again when it changes. */
export function useValue<T>(value: Followed<T>): T {
  const [, render] = useReducer<number, void>((n) => n + 1, 0);
  const shown = value.get();
  useEffect(() => {
    const unsubscribe = value.subscribe(() => render());
    // It may have changed before the effect ran.
    if (!Object.is(value.get(), shown)) render();
    return unsubscribe;
  }, [value]);
  return shown;
}

/** useNow renders again in an interval, for ages. */
export function useNow(interval = 1000): number {
  const [, render] = useReducer<number, void>((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) render();
    }, interval);
    return () => clearInterval(timer);
  }, [interval]);
  return Date.now();
}
