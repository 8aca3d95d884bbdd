// A list of which only the rows on the screen are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const around = 8;

export interface WindowProps {
  /** How many rows there are. */
  length: number;
  /** The height of a row in pixels, on a wide and on a narrow screen. */
  height: [number, number];
  label: string;
  /** rows returns the rows of a range. */
  rows: (from: number, to: number, active: number) => ComponentChildren;
  head?: ComponentChildren;
  class?: string;
  /** stick keeps the end visible while the user has not scrolled away from it. */
  stick?: boolean;
  onStick?: (sticks: boolean) => void;
  role?: "table" | "log";
  columns?: number;
}

const narrow = matchMedia("(max-width: 760px)");

export function Window({ length, height, label, rows, head, class: name, stick, onStick, role = "table", columns }: WindowProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [view, setView] = useState(600);
  const [active, setActive] = useState(-1);
  const [small, setSmall] = useState(narrow.matches);
  const wants = useRef(false);
  const each = small ? height[1] : height[0];
  useEffect(() => {
    const changed = () => setSmall(narrow.matches);
    narrow.addEventListener("change", changed);
    const observer = new ResizeObserver(() => setView(scroller.current?.clientHeight ?? 600));
    if (scroller.current) observer.observe(scroller.current);
    return () => {
      narrow.removeEventListener("change", changed);
      observer.disconnect();
    };
  }, []);
  const from = Math.max(0, Math.floor(top / each) - around);
  const to = Math.min(length, Math.ceil((top + view) / each) + around);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element && stick) element.scrollTop = element.scrollHeight;
  }, [length, stick, view]);
  useLayoutEffect(() => {
    if (!wants.current) return;
    const link = scroller.current?.querySelector<HTMLElement>(`[aria-rowindex="${active + 2}"] a`);
    if (!link) return;
    wants.current = false;
    link.focus({ preventScroll: true });
  });
  const move = (event: KeyboardEvent) => {
    const element = scroller.current;
    if (!element || role !== "table") return;
    const page = Math.max(1, Math.floor(view / each) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -length, End: length };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = Math.min(length - 1, Math.max(0, (active < from || active > to ? Math.floor(element.scrollTop / each) - (step > 0 ? 1 : 0) : active) + step));
    wants.current = true;
    setActive(next);
    if (next * each < element.scrollTop) element.scrollTop = next * each;
    else if ((next + 1) * each > element.scrollTop + view) element.scrollTop = (next + 1) * each - view;
  };
  return (
    <div class={"window " + (name ?? "")} role={role} aria-label={label} aria-rowcount={role === "table" ? length + 1 : undefined} aria-colcount={columns} onKeyDown={move}>
      {head}
      <div class="scroller" ref={scroller} tabIndex={0} role={role === "table" ? "rowgroup" : undefined} aria-label={role === "table" ? label : undefined}
        onScroll={(event) => {
          const element = event.currentTarget;
          setTop(element.scrollTop);
          onStick?.(element.scrollTop + element.clientHeight >= element.scrollHeight - each);
        }}>
        <div class="tall" role="presentation" style={{ height: `${length * each}px` }}>
          <div class="shift" role="presentation" style={{ transform: `translateY(${from * each}px)` }}>{rows(from, to, active)}</div>
        </div>
      </div>
    </div>
  );
}
