// The map of slots: one dot for each of 16 384 slots, in the colour of its owner. Slots that move light up.

import { useEffect, useRef, useState } from "preact/hooks";

import { useValue } from "../../lib/signal";
import { count, none, type SlotMap } from "../../model/slots";
import { theme } from "../../ui/theme";

/** bitmap decodes the slots that have moved, the lowest bit first. */
export function bitmap(text: string | undefined): Uint8Array {
  const moved = new Uint8Array(count);
  let bytes: Uint8Array;
  try {
    bytes = Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0));
  } catch {
    return moved;
  }
  for (let slot = 0; slot < count; slot++) moved[slot] = ((bytes[slot >> 3] ?? 0) >> (slot & 7)) & 1;
  return moved;
}

interface Props {
  map: SlotMap;
  /** The slots of the change under way that have moved. */
  moved?: Uint8Array;
  /** The colours of cells, as variables of the style sheet. */
  colors: Record<string, string>;
  /** A cell that stands out. */
  chosen: string;
  /** The slots that a plan would move. */
  plan?: Uint8Array;
  found?: { slot: number; text: string };
}

/** How long a slot shines after it has moved. */
const shine = 2500;

export function SlotMapView(props: Props) {
  const { map, moved, found } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [cursor, setCursor] = useState<number | null>(null);
  const [systemDark, setSystemDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  const chosenTheme = useValue(theme);
  const arrivals = useRef<{ moved?: Uint8Array; at: Float64Array }>({ at: new Float64Array(count) });
  const columns = width < 640 ? 128 : 256;
  const rows = count / columns;

  useEffect(() => {
    const observer = new ResizeObserver((entries) => setWidth(entries[0]?.contentRect.width ?? 0));
    observer.observe(box.current!);
    const media = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setSystemDark(media.matches);
    media.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      media.removeEventListener("change", changed);
    };
  }, []);

  useEffect(() => {
    const target = canvas.current;
    if (!target || width === 0) return;
    const last = arrivals.current;
    if (moved && last.moved) {
      for (let slot = 0; slot < count; slot++) if (moved[slot] && !last.moved[slot]) last.at[slot] = performance.now();
    }
    last.moved = moved;
    let frame = 0;
    const paint = () => {
      if (draw(target, props, { columns, rows, width, at: last.at })) frame = requestAnimationFrame(paint);
    };
    paint();
    return () => cancelAnimationFrame(frame);
  }, [map, moved, props.plan, props.chosen, found?.slot, width, columns, chosenTheme, systemDark, JSON.stringify(props.colors)]);

  const at = (event: MouseEvent) => {
    const area = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - area.left) / area.width) * columns);
    const row = Math.floor(((event.clientY - area.top) / area.height) * rows);
    return Math.min(count - 1, Math.max(0, row * columns + column));
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step) return;
    event.preventDefault();
    setCursor((before) => Math.min(count - 1, Math.max(0, (before ?? 0) + step)));
  };
  const shown = cursor ?? found?.slot ?? null;
  return (
    <div class="body slots">
      <div ref={box} class="slots-box">
        <canvas ref={canvas} role="img" tabIndex={0} aria-label="Map of slots. Use the arrow keys to read single slots." aria-describedby="slot-text"
          onMouseMove={(event) => setCursor(at(event))} onMouseLeave={() => setCursor(null)} onClick={(event) => setCursor(at(event))} onKeyDown={keys} onBlur={() => setCursor(null)} />
        {shown !== null && width > 0 ? <i class="slot-cursor" style={{ left: `${(100 * (shown % columns)) / columns}%`, top: `${(100 * Math.floor(shown / columns)) / rows}%`, width: `${100 / columns}%`, height: `${100 / rows}%` }} /> : null}
      </div>
      <p class="small slot-text" id="slot-text" aria-live="polite">{shown === null ? <span class="faint">Point at a slot to see its owner and its backup cell.</span> : <Slot {...props} slot={shown} name={cursor === null ? found?.text : undefined} />}</p>
    </div>
  );
}

function Slot({ map, moved, slot, name, colors, plan }: Props & { slot: number; name?: string }) {
  const cell = (index: number) => (index === none ? "nobody" : (map.cells[index]?.name ?? "nobody"));
  const old = cell(map.old[slot]!), next = cell(map.next[slot]!), backup = cell(map.backup[slot]!);
  const label = (text: string) => <><i class="swatch" style={{ background: colors[text] }} /> <strong>{text}</strong></>;
  return (
    <>
      {name ? <><strong class="wrap">{name}</strong> is in slot {slot}: </> : <>Slot {slot}: </>}
      {old === next ? label(old) : <>{label(old)} → {label(next)}, {moved?.[slot] ? "moved" : "not moved yet"}</>}
      <span class="soft">, backed up by {label(backup)}</span>
      {plan?.[slot] ? <span class="soft">, would move by the plan</span> : null}
    </>
  );
}

interface Layout {
  columns: number;
  rows: number;
  width: number;
  at: Float64Array;
}

/** draw paints the map, and returns whether something in it still shines. */
function draw(canvas: HTMLCanvasElement, { map, moved, colors, chosen, plan, found }: Props, { columns, rows, width, at }: Layout): boolean {
  const scale = Math.max(1, devicePixelRatio || 1);
  const pitch = Math.max(2, Math.floor((width * scale) / columns));
  const gap = pitch >= 4 ? 1 : 0;
  canvas.width = pitch * columns;
  canvas.height = pitch * rows;
  const context = canvas.getContext("2d");
  if (!context) return false;
  const style = getComputedStyle(canvas);
  const resolve = (name: string) => resolved(canvas, style, name);
  const palette = map.cells.map((cell) => resolve(colors[cell.name] ?? "var(--faint)"));
  const ink = resolve("var(--ink)");
  const ground = resolve("var(--sunken)");
  const target = map.cells.findIndex((cell) => cell.name === chosen);
  const now = performance.now();
  const size = pitch - gap;
  let shining = false;
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (let slot = 0; slot < count; slot++) {
    const x = (slot % columns) * pitch;
    const y = Math.floor(slot / columns) * pitch;
    const old = map.old[slot]!, next = map.next[slot]!;
    const pending = old !== next && !moved?.[slot];
    const owner = pending ? old : next;
    const dim = (target >= 0 && owner !== target && map.backup[slot] !== target) || (plan && !plan[slot]);
    context.globalAlpha = dim ? 0.22 : target >= 0 && owner !== target ? 0.5 : 1;
    context.fillStyle = palette[owner] ?? ground;
    context.fillRect(x, y, size, size);
    if (pending) {
      // What will move shows both owners.
      context.globalAlpha = 1;
      context.fillStyle = palette[next] ?? ground;
      const half = Math.max(1, Math.ceil(size / 2));
      context.fillRect(x + size - half, y + size - half, half, half);
    }
    const left = at[slot]! > 0 ? 1 - (now - at[slot]!) / shine : 0;
    if (left > 0) {
      shining = true;
      context.globalAlpha = left;
      context.fillStyle = ink;
      context.fillRect(x, y, size, size);
    }
  }
  context.globalAlpha = 1;
  if (found) {
    context.strokeStyle = ink;
    context.lineWidth = Math.max(2, pitch / 2);
    const radius = pitch * 2.5;
    context.beginPath();
    context.arc((found.slot % columns) * pitch + pitch / 2, Math.floor(found.slot / columns) * pitch + pitch / 2, radius, 0, 2 * Math.PI);
    context.stroke();
  }
  return shining;
}

/** resolved returns a colour of the style sheet as a canvas understands it. */
function resolved(canvas: HTMLCanvasElement, style: CSSStyleDeclaration, name: string): string {
  canvas.style.color = name;
  const color = style.color;
  canvas.style.color = "";
  return color;
}
