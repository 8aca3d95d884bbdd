// Icons, drawn for this console on a grid of 16.

import type { ComponentChildren } from "preact";

function Icon({ children, size = 16, class: name }: { children: ComponentChildren; size?: number; class?: string }) {
  return (
    <svg class={name} width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      {children}
    </svg>
  );
}

export const icons = {
  overview: () => <Icon><rect x="2" y="2.5" width="12" height="4" rx="1" /><rect x="2" y="9.5" width="5" height="4" rx="1" /><rect x="9" y="9.5" width="5" height="4" rx="1" /></Icon>,
  cells: () => <Icon><path d="M8 1.8l3 1.75v3.5L8 8.8 5 7.05v-3.5z" /><path d="M5 7.3l3 1.75v3.5L5 14.3l-3-1.75v-3.5z" /><path d="M11 7.3l3 1.75v3.5l-3 1.75-3-1.75v-3.5z" /></Icon>,
  clusters: () => <Icon><rect x="2" y="2.5" width="12" height="4.5" rx="1" /><rect x="2" y="9" width="12" height="4.5" rx="1" /><path d="M4.8 4.75h.01M4.8 11.25h.01" /></Icon>,
  workloads: () => <Icon><path d="M8 1.8l5.5 3v6.4L8 14.2l-5.5-3V4.8z" /><path d="M2.6 4.9L8 8l5.4-3.1M8 8v6.2" /></Icon>,
  pods: () => <Icon><circle cx="4.5" cy="4.5" r="2.2" /><circle cx="11.5" cy="4.5" r="2.2" /><circle cx="4.5" cy="11.5" r="2.2" /><circle cx="11.5" cy="11.5" r="2.2" /></Icon>,
  simulate: () => <Icon><path d="M6 2h4M6.8 2v4L3 12.4c-.4.8 0 1.6 1 1.6h8c1 0 1.4-.8 1-1.6L9.2 6V2" /><path d="M5 10h6" /></Icon>,
  copy: () => <Icon><rect x="5.5" y="5.5" width="8" height="8" rx="1.5" /><path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2" /></Icon>,
  done: () => <Icon><path d="M3 8.5l3.2 3.2L13 5" /></Icon>,
  sun: () => <Icon><circle cx="8" cy="8" r="2.8" /><path d="M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9" /></Icon>,
  moon: () => <Icon><path d="M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1z" /></Icon>,
  auto: () => <Icon><circle cx="8" cy="8" r="5.6" /><path d="M8 2.4v11.2a5.6 5.6 0 0 0 0-11.2z" fill="currentColor" stroke="none" /></Icon>,
  keyboard: () => <Icon><rect x="1.5" y="4" width="13" height="8" rx="1.5" /><path d="M4 6.7h.01M6.7 6.7h.01M9.3 6.7h.01M12 6.7h.01M5 9.5h6" /></Icon>,
  leave: () => <Icon><path d="M6 2.5H3.5a1 1 0 0 0-1 1v9a1 1 0 0 0 1 1H6M10.5 11l3-3-3-3M13.2 8H6" /></Icon>,
  user: () => <Icon><circle cx="8" cy="5.3" r="2.7" /><path d="M2.8 13.8c.6-2.6 2.6-4 5.2-4s4.6 1.4 5.2 4" /></Icon>,
  clock: () => <Icon><circle cx="8" cy="8" r="5.8" /><path d="M8 4.8V8l2.2 1.6" /></Icon>,
};

export type Level = "ok" | "warn" | "bad" | "busy" | "unknown";

/** The shape says the same as the colour. */
export function Mark({ level, size = 14 }: { level: Level; size?: number }) {
  const common = { width: size, height: size, viewBox: "0 0 14 14", "aria-hidden": "true" as const };
  const cut = "var(--surface)";
  switch (level) {
    case "ok":
      return <svg {...common}><circle cx="7" cy="7" r="6" fill="currentColor" /><path d="M4.2 7.2l2 2 3.6-4" fill="none" stroke={cut} stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" /></svg>;
    case "warn":
      return <svg {...common}><path d="M7 1.2l6.2 11.2H.8z" fill="currentColor" stroke="currentColor" stroke-linejoin="round" /><path d="M7 5.4v3.2M7 10.6v.05" stroke={cut} stroke-width="1.5" stroke-linecap="round" /></svg>;
    case "bad":
      return <svg {...common}><path d="M4.3 1h5.4L13 4.3v5.4L9.7 13H4.3L1 9.7V4.3z" fill="currentColor" /><path d="M4.9 4.9l4.2 4.2M9.1 4.9L4.9 9.1" stroke={cut} stroke-width="1.6" stroke-linecap="round" /></svg>;
    case "busy":
      return <svg {...common} class="spin"><circle cx="7" cy="7" r="5.2" fill="none" stroke="currentColor" stroke-width="1.8" stroke-dasharray="22 11" stroke-linecap="round" /></svg>;
    default:
      return <svg {...common}><circle cx="7" cy="7" r="5.2" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.6 2.2" /></svg>;
  }
}
