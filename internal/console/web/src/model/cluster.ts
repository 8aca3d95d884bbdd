// How a member is, in one word.

import { condition, type Cluster } from "../lib/kube";
import type { Level } from "../ui/icons";

export interface Health {
  level: Level;
  text: string;
  why?: string;
}

export function health(cluster: Cluster): Health {
  const ready = condition(cluster, "Ready");
  if (cluster.metadata.deletionTimestamp) return { level: "busy", text: "Leaving" };
  if (ready?.status === "False") return { level: "bad", text: "Not ready", why: ready.message || ready.reason };
  if (ready?.status !== "True") return { level: "unknown", text: "Unknown", why: ready?.message || "Nothing has reported its state yet." };
  const { totalNum = 0, readyNum = 0 } = cluster.status?.nodeSummary ?? {};
  if (readyNum < totalNum) return { level: "warn", text: "Ready", why: `${totalNum - readyNum} of ${totalNum} nodes are not ready.` };
  if (cordoned(cluster)) return { level: "warn", text: "Cordoned", why: "Nothing new is placed here." };
  return { level: "ok", text: "Ready" };
}

/** cordoned tells whether nothing new is placed in a member. */
export function cordoned(cluster: Cluster): boolean {
  return (cluster.spec?.taints ?? []).some((t) => t.effect === "NoSchedule" || t.effect === "NoExecute");
}

/** site returns where a member is. */
export function site(cluster: Cluster): string {
  const { provider, region, zone, zones } = cluster.spec ?? {};
  return [provider, region, zones?.length ? zones.join(", ") : zone].filter(Boolean).join(" / ");
}
