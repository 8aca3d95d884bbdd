// Changes of a topology, as the commands of `cellplane cells` make them. The API server refuses what is not allowed; here it is said before.

import type { TopologyCell } from "../lib/kube";
import { running } from "./cells";
import { chooseSeed, compile, count, type Cell } from "./slots";

export type Action = "add" | "drain" | "weight" | "failover" | "rejoin";

export interface Edit {
  action: Action;
  cell: string;
  weight: number;
}

/** command returns what to type for the same. */
export function command(edit: Edit, plan = false): string {
  const words = ["cellplane cells", plan ? "plan" : "", edit.action, edit.cell || "CELL"];
  if (edit.action === "weight") words.push(String(edit.weight));
  if (edit.action === "add" && edit.weight !== 1) words.push("--weight", String(edit.weight));
  return words.filter(Boolean).join(" ");
}

/** listed returns the cells of a topology for compile. */
export function listed(cells: TopologyCell[]): Cell[] {
  return cells.map((c) => ({ name: c.name, seed: c.seed, weight: c.weight ?? 1, targetWeight: c.targetWeight, state: c.state ?? "Normal" }));
}

/** apply returns the cells after an edit. It throws an Error that says what is wrong. */
export async function apply(cells: TopologyCell[], edit: Edit): Promise<TopologyCell[]> {
  const found = cells.find((c) => c.name === edit.cell);
  const state = found?.state ?? "Normal";
  const others = cells.filter((c) => c.name !== edit.cell && ["Normal", "In"].includes(c.state ?? "Normal")).length;
  const refuse = (text: string): never => {
    throw new Error(text);
  };
  if (!edit.cell) refuse("Choose a cell.");
  if (!/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(edit.cell) || edit.cell.length > 48 || edit.cell === "hub") refuse("The name of a cell is a DNS label of at most 48 characters, and not hub.");
  const change = running({ metadata: {}, spec: { cells } });
  if (change && edit.action !== "failover") refuse(`Another change is under way: ${change.text}. Wait for its end, or reverse it.`);
  if ((edit.action === "add" || edit.action === "weight") && !(Number.isInteger(edit.weight) && edit.weight >= 1 && edit.weight <= 1000)) refuse("A weight is a whole number from 1 to 1000.");
  if (edit.action === "add") {
    if (found) refuse(state === "Failed" ? `${edit.cell} has failed: have it rejoin.` : `${edit.cell} is in the topology already.`);
    const seed = await chooseSeed(listed(cells), { name: edit.cell, weight: edit.weight });
    return [...cells, { name: edit.cell, weight: edit.weight, ...(seed ? { seed } : {}), state: "In" }];
  }
  if (!found) return refuse(`There is no cell ${edit.cell} in the topology.`);
  const { targetWeight: _, ...plain } = found;
  const replaced = (next: TopologyCell) => cells.map((c) => (c.name === edit.cell ? next : c));
  switch (edit.action) {
    case "drain":
      if (state !== "Normal") refuse(`${edit.cell} is ${state === "Failed" ? "failed and owns nothing" : "changing already"}.`);
      if (others === 0) refuse(`${edit.cell} is the only cell: add another before it can be drained.`);
      return replaced({ ...found, state: "Out" });
    case "weight":
      if (state !== "Normal") refuse(`${edit.cell} has failed and owns nothing.`);
      if ((found.weight ?? 1) === edit.weight) refuse(`${edit.cell} has weight ${edit.weight} already.`);
      return replaced({ ...found, targetWeight: edit.weight });
    case "failover":
      if (state === "Failed") refuse(`${edit.cell} has been declared failed already.`);
      if (others === 0) refuse(`${edit.cell} is the only cell: no other can take over its slots.`);
      return replaced({ ...plain, state: "Failed" });
    case "rejoin":
      if (state !== "Failed") refuse(`${edit.cell} has not failed.`);
      return replaced({ ...found, state: "In" });
  }
}

/** reversed turns the change under way back: what has moved moves back. */
export function reversed(cells: TopologyCell[]): TopologyCell[] {
  return cells.map((c) => {
    if (c.state === "In") return { ...c, state: "Out" };
    if (c.state === "Out") return { ...c, state: "In" };
    if (c.targetWeight) return { ...c, weight: c.targetWeight, targetWeight: c.weight ?? 1 };
    return c;
  });
}

export interface Share {
  cell: string;
  before: number;
  after: number;
}

export interface Flow {
  from: string;
  to: string;
  slots: number;
}

export interface Plan {
  shares: Share[];
  flows: Flow[];
  moved: number;
  /** The slots that would get another owner. */
  moves: Uint8Array;
  /** The cells that it is made for. */
  of: TopologyCell[];
  cells: TopologyCell[];
}

/** preview computes what an edit would move. */
export async function preview(cells: TopologyCell[], edit: Edit): Promise<Plan> {
  const edited = await apply(cells, edit);
  const before = compile(listed(cells));
  await new Promise((resolve) => setTimeout(resolve)); // the page stays responsive
  const after = compile(listed(edited));
  const flows = new Map<string, Flow>();
  const shares = new Map<string, Share>();
  const share = (cell: string) => {
    let found = shares.get(cell);
    if (!found) shares.set(cell, (found = { cell, before: 0, after: 0 }));
    return found;
  };
  for (const { name } of after.cells) share(name);
  const moves = new Uint8Array(count);
  let moved = 0;
  for (let slot = 0; slot < count; slot++) {
    const from = before.cells[before.next[slot]!]!.name;
    const to = after.cells[after.next[slot]!]!.name;
    share(from).before++;
    share(to).after++;
    if (from === to) continue;
    moves[slot] = 1;
    moved++;
    const key = from + ">" + to;
    const flow = flows.get(key) ?? { from, to, slots: 0 };
    flow.slots++;
    flows.set(key, flow);
  }
  const by = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  return {
    shares: [...shares.values()].sort((a, b) => by(a.cell, b.cell)),
    flows: [...flows.values()].sort((a, b) => by(a.from, b.from) || by(a.to, b.to)),
    moved,
    moves,
    of: cells,
    cells: edited,
  };
}
