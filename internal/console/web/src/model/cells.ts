// Cells and their shares of the slots.

import { condition, type Cell, type CellTopology, type TopologyCell } from "../lib/kube";
import type { Level } from "../ui/icons";

export const slotCount = 16384;

export interface CellRow {
  name: string;
  /** Its colour, by its place among all cells in name order. */
  color: string;
  cell?: Cell;
  topology?: TopologyCell;
  slots: number;
  targetSlots: number;
  backupSlots: number;
}

/** rows joins the topology with the Cells. */
export function cellRows(cells: Cell[], topology: CellTopology | undefined): CellRow[] {
  const names = new Set([...cells.map((c) => c.metadata.name ?? ""), ...(topology?.spec?.cells ?? []).map((c) => c.name)]);
  return [...names].sort().map((name, i) => {
    const held = topology?.status?.cells?.find((c) => c.name === name);
    return {
      name,
      color: colorOf(i),
      cell: cells.find((c) => c.metadata.name === name),
      topology: topology?.spec?.cells?.find((c) => c.name === name),
      slots: held?.slots ?? 0,
      targetSlots: held?.targetSlots ?? 0,
      backupSlots: held?.backupSlots ?? 0,
    };
  });
}

export function colorOf(index: number): string {
  return `var(--c${index % 10})`;
}

export interface CellHealth {
  level: Level;
  text: string;
  why?: string;
}

export function cellHealth(row: CellRow): CellHealth {
  if (row.topology?.state === "Failed") return { level: "bad", text: "Failed", why: condition(row.cell, "Fenced")?.message };
  if (!row.cell) return { level: "bad", text: "No Cell", why: "The topology lists it, and there is no Cell of this name." };
  const ready = condition(row.cell, "Ready");
  if (ready?.status === "False") return { level: "bad", text: "Not ready", why: ready.message };
  if (ready?.status !== "True") return { level: "unknown", text: "Unknown", why: ready?.message };
  if (!row.topology) return { level: "unknown", text: "Spare", why: "It is ready, and not part of the topology." };
  if (row.topology.state === "In") return { level: "busy", text: "Joining" };
  if (row.topology.state === "Out") return { level: "busy", text: "Leaving" };
  if (row.topology.targetWeight) return { level: "busy", text: "Changing weight" };
  return { level: "ok", text: "Ready" };
}

/** provedOften is the age of a proof that only a hub manager that does not run explains. */
const provedOften = 30_000;

/** backupLag says up to when a backup is complete, as `cellplane cells list` does. */
export function backupLag(cell: Cell | undefined, now: number): { level: Level; text: string; why?: string } {
  const at = cell?.status?.backup?.upToDateAt;
  const backed = condition(cell, "BackedUp");
  if (backed?.reason === "NoBackupCell") return { level: "warn", text: "no backup", why: backed.message };
  if (!at) return { level: "unknown", text: "–", why: backed?.message };
  const lag = now - Date.parse(at);
  if (!cell?.status?.backup?.pendingKeys && backed?.status === "True" && Math.abs(lag) < provedOften) return { level: "ok", text: "none", why: backed.message };
  if (backed?.status === "Unknown") return { level: "unknown", text: "unknown", why: backed.message };
  if (lag <= -provedOften) return { level: "unknown", text: "unknown", why: "The clocks of this machine and of the hub manager differ." };
  return { level: backed?.status === "False" ? "bad" : "warn", text: lag < 1000 ? "under 1 s" : Math.round(lag / 1000) + " s", why: backed?.message };
}

/** keepers returns the cells that hold backups: all that own slots, if there are two. */
export function keepers(row: CellRow, all: CellRow[]): string[] {
  return all.filter((other) => other.name !== row.name && other.backupSlots > 0 && other.topology?.state !== "Failed").map((other) => other.name);
}

/** running describes the change under way; undefined if there is none. */
export function running(topology: CellTopology | undefined): { text: string; done: number; total: number; phase: string; startedAt?: string } | undefined {
  const cells = topology?.spec?.cells ?? [];
  const parts = [
    ...cells.filter((c) => c.state === "In").map((c) => `${c.name} joins`),
    ...cells.filter((c) => c.state === "Out").map((c) => `${c.name} leaves`),
    ...cells.filter((c) => c.targetWeight).map((c) => `${c.name} gets weight ${c.targetWeight}`),
  ];
  const phase = topology?.status?.phase ?? "Stable";
  if (parts.length === 0 && (phase === "Stable" || phase === undefined)) return undefined;
  const change = topology?.status?.change;
  const current = change?.epoch === topology?.metadata.generation ? change : undefined;
  return { text: parts.join(", ") || "a failed cell is taken over", done: current?.movedObjects ?? 0, total: current?.totalObjects ?? 0, phase, startedAt: current?.startedAt };
}
