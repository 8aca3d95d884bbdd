// What a ledger says about the room in a member. A line of nodes is text like "12 cpu=3500m memory=12Gi".

import type { ClusterLedger, Resources } from "../lib/kube";
import { quantity } from "../lib/quantity";

export interface Nodes {
  count: number;
  free: Record<string, number>;
}

export function parseNodes(line: string): Nodes {
  const [count = "", ...resources] = line.trim().split(/\s+/);
  const free: Record<string, number> = {};
  for (const resource of resources) {
    const at = resource.indexOf("=");
    if (at > 0) free[resource.slice(0, at)] = quantity(resource.slice(at + 1));
  }
  return { count: Number.parseInt(count, 10) || 0, free };
}

export interface Room {
  allocatable: Record<string, number>;
  free: Record<string, number>;
  promised: Record<string, number>;
  /** The node with the most free resources, by the resource in which it is largest. */
  largest: Record<string, number>;
}

/** room adds up what the nodes that exist have, what is free there, and what is promised to pods that do not run yet. */
export function room(ledger: ClusterLedger): Room {
  const sum: Room = { allocatable: {}, free: {}, promised: {}, largest: {} };
  for (const one of ledger.classes ?? []) {
    if (one.potential) continue;
    for (const line of one.nodes ?? []) {
      const nodes = parseNodes(line);
      add(sum.allocatable, one.allocatable, nodes.count);
      for (const [name, value] of Object.entries(nodes.free)) sum.free[name] = (sum.free[name] ?? 0) + value * nodes.count;
      if (nodes.count > 0 && weight(nodes.free) > weight(sum.largest)) sum.largest = nodes.free;
    }
  }
  for (const reservation of ledger.reservations ?? []) {
    const pods = (reservation.pods ?? []).reduce((n, p) => n + p.count, 0);
    add(sum.promised, reservation.requests, pods);
  }
  return sum;
}

function add(sum: Record<string, number>, resources: Resources | undefined, times: number): void {
  for (const [name, text] of Object.entries(resources ?? {})) sum[name] = (sum[name] ?? 0) + quantity(text) * times;
}

/** weight orders nodes: a processor counts as much as 4 GiB. */
function weight(free: Record<string, number>): number {
  return Math.min(free["cpu"] ?? 0, (free["memory"] ?? 0) / 2 ** 32);
}
