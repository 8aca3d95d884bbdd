// A long list of objects, as the API's table of them.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import type { KubeObject } from "../lib/kube";
import { digits } from "../lib/quantity";
import { useValue } from "../lib/signal";
import { Pages, type Row } from "../lib/table";
import { clock } from "../lib/time";
import { Empty, Failure, Waiting } from "./parts";
import { Window } from "./window";

/** usePages reads a list while a page is shown. key says when another list is wanted. */
export function usePages(path: string, query: Record<string, string>, match?: (row: Row) => boolean, matchKey = ""): Pages {
  const key = path + JSON.stringify(query) + matchKey;
  const pages = useMemo(() => new Pages({ path, query, match }), [key]);
  useEffect(() => {
    pages.restart();
    return () => pages.close();
  }, [pages]);
  useValue(pages);
  return pages;
}

export interface BrowseColumn {
  title: string;
  /** Its width in the grid. */
  width: string;
  /** On a narrow screen it is left out. */
  wide?: boolean;
  show: (row: Row, cell: (title: string) => string) => ComponentChildren;
}

export function Browse({ of: pages, columns, what, label, empty, short }: { of: Pages; columns: BrowseColumn[]; what: string; label: string; empty: ComponentChildren; short?: boolean }) {
  if (!pages.loaded) return pages.error ? <Failure error={pages.error} what={what} /> : <Waiting />;
  if (pages.length === 0 && pages.complete) return <>{empty}</>;
  const at = new Map(pages.columns.map((title, i) => [title.toLowerCase(), i]));
  const cell = (row: Row) => (title: string) => {
    const value = row.cells[at.get(title.toLowerCase()) ?? -1];
    return value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  };
  const template = columns.map((c) => c.width).join(" ");
  return (
    <>
      <Window class={"browse" + (short ? " short" : "")} length={pages.length} height={[36, 62]} label={label} columns={columns.length}
        head={<div role="rowgroup" class="heads"><div role="row" class="line" aria-rowindex={1} style={{ gridTemplateColumns: template }}>{columns.map((c) => <span role="columnheader" class={c.wide ? "wide" : ""} key={c.title}>{c.title}</span>)}</div></div>}
        rows={(from, to) => pages.show(from, to).map((row, i) => (
          <div role="row" class="line" key={from + i} aria-rowindex={from + i + 2} style={{ gridTemplateColumns: template }}>
            {row ? columns.map((c) => <span role="cell" class={"clip " + (c.wide ? "wide" : "")} key={c.title}>{c.show(row, cell(row))}</span>) : <span role="cell" class="faint">…</span>}
          </div>
        ))} />
      {pages.error ? <div class="body line-top"><p class="problem" role="alert">{pages.error.message} It is tried again by itself.</p></div> : null}
      {pages.halted ? <div class="body line-top calm"><span class="soft">{digits(pages.seen)} were looked through{pages.remaining ? ` of about ${digits(pages.seen + pages.remaining)}` : ""}.</span><button type="button" onClick={() => pages.goOn()}>Look further</button></div> : null}
      {pages.capped ? <div class="body line-top soft">So many rows are not shown in one list. Filter to see the others.</div> : null}
    </>
  );
}

/** Counted says how many rows there are, and how current they are. */
export function Counted({ of: pages }: { of: Pages }) {
  if (!pages.loaded) return null;
  const total = pages.remaining ? `about ${digits(pages.seen + pages.remaining)}` : pages.complete ? digits(pages.length) : `${digits(pages.length)} read so far`;
  return (
    <span class="calm small faint">
      <span>{total}</span>
      {pages.following ? <span>live</span> : <><span>as of {clock(pages.at)}</span><button type="button" class="plain" onClick={() => pages.restart()}>Read again</button></>}
    </span>
  );
}

export function named(object: KubeObject | Row): string {
  return `${object.metadata.namespace ?? ""}/${object.metadata.name ?? ""}`;
}

export function NothingFound({ what, clear }: { what: string; clear?: () => void }) {
  return <Empty title={`No ${what} found`}>{clear ? <button type="button" onClick={clear}>Show all</button> : null}</Empty>;
}
