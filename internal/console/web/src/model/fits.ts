// How many pods the free room of a member holds, as far as its ledger says.

import type { ClusterLedger, Resources } from "../lib/kube";
import { quantity } from "../lib/quantity";
import { parseNodes } from "./ledger";

/** fits counts pods by the free room of nodes. Promises, and taints and labels of nodes, are left out: the scheduler knows more. Infinity if nothing is asked for. */
export function fits(ledger: ClusterLedger, requests: Resources): number {
  const asked = Object.entries(requests).map(([name, text]) => [name, quantity(text)] as const).filter(([, value]) => value > 0);
  let sum = 0;
  for (const one of ledger.classes ?? []) {
    if (one.potential) continue;
    for (const line of one.nodes ?? []) {
      const nodes = parseNodes(line);
      const limits = asked.map(([name, value]) => Math.floor((nodes.free[name] ?? 0) / value + 1e-9));
      if (nodes.free["pods"] !== undefined) limits.push(Math.floor(nodes.free["pods"]));
      if (nodes.count > 0) sum += nodes.count * (limits.length > 0 ? Math.max(0, Math.min(...limits)) : Infinity);
    }
  }
  return sum;
}

/** promisedTo counts the pods of a workload for which room is kept. */
export function promisedTo(ledger: ClusterLedger, workload: { kind?: string; namespace?: string; name?: string } | undefined): number {
  let sum = 0;
  for (const reservation of ledger.reservations ?? []) {
    const of = reservation.workload;
    if (of?.kind !== workload?.kind || of?.namespace !== workload?.namespace || of?.name !== workload?.name) continue;
    sum += (reservation.pods ?? []).reduce((n, pods) => n + pods.count, 0);
  }
  return sum;
}
