// Times for people.

/** duration shows the two largest units. */
export function duration(milliseconds: number): string {
  const s = Math.max(0, Math.floor(milliseconds / 1000));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return m < 10 && s % 60 ? `${m} min ${s % 60} s` : `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 24) return h < 10 && m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return d < 10 && h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
}

/** age shows how long ago a time was; a dash if it is not known. */
export function age(time: string | number | undefined | null, now: number): string {
  const at = typeof time === "string" ? Date.parse(time) : time;
  return at ? duration(now - at) : "–";
}

/** clock shows the time of the day. */
export function clock(time: string | number): string {
  return new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}
