// The parts that pages are made of.

import type { ComponentChildren, VNode } from "preact";
import { useMemo, useState } from "preact/hooks";

import type { ApiError } from "../lib/errors";
import type { Condition, KubeObject } from "../lib/kube";
import type { Snapshot } from "../lib/collection";
import { useNow } from "../lib/signal";
import { age, clock } from "../lib/time";
import { icons, Mark, type Level } from "./icons";

export function Status({ level, children, title }: { level: Level; children: ComponentChildren; title?: string }) {
  return <span class={"status " + level} title={title}><Mark level={level} /><span>{children}</span></span>;
}

export function Badge({ level, children, outline, title }: { level?: Level; children: ComponentChildren; outline?: boolean; title?: string }) {
  return <span class={"badge " + (level ?? "") + (outline ? " outline" : "")} title={title}>{children}</span>;
}

export function Panel({ title, note, actions, children }: { title?: ComponentChildren; note?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="panel">
      {title ? <header><h2>{title}</h2>{note ? <span class="faint small">{note}</span> : null}{actions ? <div class="side-actions">{actions}</div> : null}</header> : null}
      {children}
    </section>
  );
}

export function Head({ title, lead, status, actions, document: name }: { title: ComponentChildren; lead?: ComponentChildren; status?: ComponentChildren; actions?: ComponentChildren; document: string }) {
  document.title = name + " · Cellplane";
  return <div class="head"><h1 tabIndex={-1}>{title}</h1>{status}{actions ? <div class="side-actions">{actions}</div> : null}{lead ? <p class="lead">{lead}</p> : null}</div>;
}

/** Age shows how long ago something was, and the time itself as its title. */
export function Age({ time }: { time?: string | number | null }) {
  const now = useNow();
  return time ? <time title={new Date(time).toLocaleString()}>{age(time, now)}</time> : <span class="faint">–</span>;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="state"><strong>{title}</strong>{children ? <div>{children}</div> : null}</div>;
}

/** Failure says what is wrong, and what to do. */
export function Failure({ error, what }: { error: ApiError; what: string }) {
  if (error.status === 403) {
    return (
      <div class="state" role="status">
        <strong>You may not see {what}</strong>
        <p>{error.message}</p>
        <p>Ask an administrator of the federation to bind a role to you that allows it. This page shows it as soon as they have.</p>
      </div>
    );
  }
  if (error.status === 404) {
    return <div class="state" role="status"><strong>This federation has no {what}</strong><p>{error.message}</p></div>;
  }
  if (error.status === 401) {
    return <div class="state" role="status"><strong>You are signed out</strong><p>Sign in again to see {what}.</p></div>;
  }
  return <div class="state" role="alert"><strong>Cannot read {what}</strong><p>{error.message} It is tried again by itself.</p></div>;
}

/** Waiting is only visible when the answer takes its time. */
export function Waiting() {
  return <div class="waiting" aria-busy="true"><span class="hidden">Loading</span><i /><i /><i /></div>;
}

/** Shown shows a collection when it has been read, and says what is wrong otherwise. */
export function Shown<T extends KubeObject>({ of: snapshot, what, children }: { of: Snapshot<T>; what: string; children: (items: T[]) => ComponentChildren }) {
  if (!snapshot.loaded) return snapshot.error ? <Failure error={snapshot.error} what={what} /> : <Waiting />;
  return <>{children(snapshot.items)}</>;
}

/** Stale says since when what is shown may be out of date. */
export function Stale({ of: snapshots }: { of: Snapshot<never>[] | Snapshot<any>[] }) {
  const since = Math.min(...snapshots.map((s) => s.staleSince ?? Infinity));
  if (since === Infinity) return null;
  const cause = snapshots.find((s) => s.error)?.error;
  return <span class="stale" role="status" title={cause?.message}>{icons.clock()} stale since {clock(since)}</span>;
}

/** levelOf judges a condition that should be True. */
export function levelOf(condition: Condition | undefined): Level {
  switch (condition?.status) {
    case "True":
      return "ok";
    case "False":
      return "bad";
    default:
      return "unknown";
  }
}

export interface Segment {
  value: number;
  class: string;
  label: string;
}

export function Meter({ total, segments, left, right }: { total: number; segments: Segment[]; left?: ComponentChildren; right?: ComponentChildren }) {
  const label = segments.map((s) => `${s.label} ${total > 0 ? Math.round((100 * s.value) / total) : 0}%`).join(", ");
  return (
    <div class="meter">
      <div class="track" role="img" aria-label={label} title={label}>
        {segments.map((s) => <i class={s.class} style={{ width: `${total > 0 ? Math.min(100, (100 * s.value) / total) : 0}%` }} />)}
      </div>
      {left || right ? <div class="text"><span>{left}</span><span>{right}</span></div> : null}
    </div>
  );
}

/** Command shows what to type for the same, with a button that copies it. */
export function Command({ children: text }: { children: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => {
    navigator.clipboard?.writeText(text).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), 1500);
      },
      () => undefined,
    );
  };
  return (
    <div class="command">
      <code tabIndex={0}>{text}</code>
      <button type="button" class="plain icon" onClick={copy} aria-label={copied ? "Copied" : "Copy the command"} title="Copy">{copied ? icons.done() : icons.copy()}</button>
    </div>
  );
}

export interface Column<T> {
  title: string;
  show: (row: T) => ComponentChildren;
  /** sort returns what rows are ordered by. */
  sort?: (row: T) => string | number;
  number?: boolean;
}

/** Table shows rows that can be sorted. On a phone each row becomes a card. */
export function Table<T>({ rows, columns, id, label, filter }: { rows: T[]; columns: Column<T>[]; id: (row: T) => string; label: string; filter?: VNode }) {
  const [order, setOrder] = useState<{ column: number; down: boolean } | null>(null);
  const sorted = useMemo(() => {
    const by = order ? columns[order.column]?.sort : undefined;
    if (!order || !by) return rows;
    const sign = order.down ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      return x < y ? -sign : x > y ? sign : 0;
    });
  }, [rows, order]);
  return (
    <div class="table-wrap">
      {filter}
      <table class="stack" aria-label={label}>
        <thead>
          <tr>
            {columns.map((column, i) => (
              <th scope="col" class={column.number ? "number" : ""} aria-sort={order?.column === i ? (order.down ? "descending" : "ascending") : undefined}>
                {column.sort
                  ? <button type="button" onClick={() => setOrder({ column: i, down: order?.column === i ? !order.down : false })}>{column.title}<span aria-hidden="true">{order?.column === i ? (order.down ? "↓" : "↑") : ""}</span></button>
                  : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => <td class={column.number ? "number" : ""} data-label={column.title}>{column.show(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Conditions({ of: conditions }: { of: Condition[] | undefined }) {
  if (!conditions?.length) return <Empty title="No conditions yet" />;
  return (
    <ul class="rows">
      {conditions.map((c) => (
        <li key={c.type}>
          <Status level={c.status === "Unknown" ? "unknown" : "ok"}>{""}</Status>
          <div class="grow">
            <strong>{c.type}</strong> <Badge>{c.status}</Badge> {c.reason ? <span class="faint small">{c.reason}</span> : null}
            {c.message ? <p class="soft small wrap">{c.message}</p> : null}
          </div>
          <span class="when"><Age time={c.lastTransitionTime} /></span>
        </li>
      ))}
    </ul>
  );
}
