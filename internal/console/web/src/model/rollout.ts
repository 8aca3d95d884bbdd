// How far a rolling update is, as `cellplane rollout status` and `explain` compute it from the template and its binding.

import { object, parseObject } from "./json";
import { type Binding, type Reported, type Template } from "./binding";

export interface Entry {
  seq: number;
  replicas: number;
  surge: number;
  unavailable: number;
  partition: number;
  paused: boolean;
  /** So many pods the cluster may have, and so few may be available there. */
  pods: number;
  available: number;
}

/** decodeLedger reads the annotation cellplane.io/rollout; empty if it is missing or of another version. */
export function decodeLedger(text: string | undefined): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  const read = parseObject(text);
  if (read["v"] !== 1) return entries;
  for (const [name, fields] of Object.entries(object(read["c"]))) {
    if (!Array.isArray(fields) || fields.length < 11 || !fields.every((n) => typeof n === "number")) continue;
    const [seq, , replicas, surge, unavailable, partition, paused, pods, available] = fields as number[];
    entries.set(name, { seq: seq!, replicas: replicas!, surge: surge!, unavailable: unavailable!, partition: partition!, paused: paused === 1, pods: pods!, available: available! });
  }
  return entries;
}

export interface RolloutCluster {
  name: string;
  replicas: number;
  pods: number;
  updated: number;
  available: number;
  /** What it may do during its update. */
  may: string;
  state: string;
  done: boolean;
  entry?: Entry;
}

export interface Rollout {
  replicas: number;
  pods: number;
  updated: number;
  available: number;
  paused: boolean;
  done: boolean;
  clusters: RolloutCluster[];
  /** The bounds of the template in pods; undefined if they are not known here. */
  most?: number;
  least?: number;
  /** What there may be by what clusters were told. */
  told?: { pods: number; available: number };
}

export function rolloutOf(template: Template, binding: Binding): Rollout {
  const annotations = binding.metadata.annotations ?? {};
  const ledger = decodeLedger(annotations["cellplane.io/rollout"]);
  const waits = parseObject(annotations["cellplane.io/rollout-waits"]);
  const shares = new Map<string, number>();
  for (const [name, entry] of ledger) if (entry.replicas > 0) shares.set(name, 0);
  const rollout: Rollout = { replicas: 0, pods: 0, updated: 0, available: 0, paused: paused(template), done: true, clusters: [] };
  for (const target of binding.spec?.clusters ?? []) {
    shares.set(target.name, target.replicas ?? 0);
    rollout.replicas += target.replicas ?? 0;
  }
  for (const name of [...shares.keys()].sort()) {
    const item = (binding.status?.aggregatedStatus ?? []).find((i) => i.clusterName === name);
    const wait = waits[name];
    const cluster = describe(name, shares.get(name) ?? 0, template.metadata.generation ?? 0, item, ledger.get(name), typeof wait === "string" ? wait : "");
    rollout.pods += cluster.pods;
    rollout.updated += cluster.updated;
    rollout.available += cluster.available;
    rollout.done &&= cluster.done;
    rollout.clusters.push(cluster);
  }
  if (template.kind === "Deployment" || template.kind === "StatefulSet") rollout.done &&= number(object(template.status)["observedGeneration"]) >= (template.metadata.generation ?? 0);
  const bounds = boundsOf(template, rollout.replicas);
  if (bounds) {
    rollout.most = rollout.replicas + bounds.surge;
    rollout.least = Math.max(0, rollout.replicas - bounds.unavailable);
  }
  if (ledger.size > 0) {
    rollout.told = { pods: 0, available: 0 };
    for (const entry of ledger.values()) {
      rollout.told.pods += entry.pods;
      rollout.told.available += entry.available;
    }
  }
  return rollout;
}

type Item = NonNullable<NonNullable<Binding["status"]>["aggregatedStatus"]>[number];

function describe(name: string, replicas: number, generation: number, item: Item | undefined, entry: Entry | undefined, waits: string): RolloutCluster {
  const reported: Reported = item?.status ?? {};
  const told = (reported.resourceTemplateGeneration ?? 0) >= generation;
  const current = told && (reported.observedGeneration ?? 0) >= (reported.generation ?? 0);
  const updated = current ? (reported.updatedReplicas ?? 0) : 0;
  const available = reported.availableReplicas ?? 0;
  const pods = reported.replicas ?? 0;
  const kept = Math.min(entry?.partition ?? 0, replicas);
  const complete = current && updated >= replicas - kept && pods === replicas;
  const cluster: RolloutCluster = { name, replicas, pods, updated, available, may: "", state: "", done: false, entry };
  if (waits) cluster.state = waits;
  else if (item && !item.applied && item.appliedMessage) cluster.state = item.appliedMessage;
  else if (replicas === 0 && (entry?.replicas ?? 0) > 0) cluster.state = "is being left";
  else if (!told) cluster.state = "has not begun";
  else if (!current) cluster.state = "begins";
  else if (!complete) cluster.state = entry?.paused ? "paused" : "updates";
  else if (available < replicas) cluster.state = "waits until its pods are available";
  else {
    cluster.done = true;
    cluster.state = updated < replicas ? `done: the partition keeps ${replicas - updated} old pods` : "done";
  }
  if (current && !complete && (entry?.seq ?? 0) > 0) cluster.may = `+${entry!.surge} -${entry!.unavailable}`;
  return cluster;
}

export function paused(template: Template): boolean {
  return template.kind === "Deployment" ? template.spec?.["paused"] === true : object(template.spec?.["updateStrategy"])["paused"] === true;
}

/** boundsOf returns the bounds of Deployments and StatefulSets, as their controllers resolve them. */
export function boundsOf(template: Template, replicas: number): { surge: number; unavailable: number } | undefined {
  const spec = object(template.spec);
  switch (`${template.apiVersion} ${template.kind}`) {
    case "apps/v1 Deployment": {
      const strategy = object(spec["strategy"]);
      if (strategy["type"] === "Recreate") return undefined;
      const rolling = object(strategy["rollingUpdate"]);
      const surge = resolve(rolling["maxSurge"] ?? "25%", replicas, Math.ceil);
      let unavailable = resolve(rolling["maxUnavailable"] ?? "25%", replicas, Math.floor);
      if (surge === 0 && unavailable === 0) unavailable = 1;
      return { surge, unavailable: Math.min(unavailable, replicas) };
    }
    case "apps/v1 StatefulSet": {
      const strategy = object(spec["updateStrategy"]);
      if (strategy["type"] === "OnDelete") return undefined;
      return { surge: 0, unavailable: Math.min(replicas, Math.max(1, resolve(object(strategy["rollingUpdate"])["maxUnavailable"] ?? 1, replicas, Math.floor))) };
    }
    default:
      return undefined;
  }
}

function resolve(bound: unknown, replicas: number, round: (n: number) => number): number {
  if (typeof bound === "number") return bound;
  const match = /^(\d+)%$/.exec(String(bound));
  return match ? round((Number(match[1]) * replicas) / 100) : 0;
}

function number(value: unknown): number {
  return typeof value === "number" ? value : 0;
}

export interface Stages {
  update: string;
  finished: Record<string, number>;
  waiting: string;
  failed: string[];
}

/** stagesOf reads what the stages of an update wait for. */
export function stagesOf(binding: Binding): Stages {
  const read = parseObject(binding.metadata.annotations?.["cellplane.io/rollout-stages"]);
  const finished = Object.entries(object(read["finished"])).filter((e): e is [string, number] => typeof e[1] === "number");
  return {
    update: typeof read["update"] === "string" ? read["update"] : "",
    finished: Object.fromEntries(finished),
    waiting: typeof read["waiting"] === "string" ? read["waiting"] : "",
    failed: Array.isArray(read["failed"]) ? read["failed"].filter((f): f is string => typeof f === "string") : [],
  };
}

export const approvalKey = "cellplane.io/rollout-approval";

/** approvalWith returns the text of an approval with one stage more, or with the failures if the stage is empty. It is what `cellplane rollout approve` writes. */
export function approvalWith(binding: Binding, update: string, stage: string): string {
  const before = parseObject(binding.metadata.annotations?.[approvalKey]);
  const same = before["update"] === update;
  const stages = same && Array.isArray(before["stages"]) ? before["stages"].filter((s): s is string => typeof s === "string") : [];
  const failures = (same && before["failures"] === true) || stage === "";
  if (stage !== "" && !stages.includes(stage)) stages.push(stage);
  return JSON.stringify({ update, ...(stages.length > 0 ? { stages } : {}), ...(failures ? { failures: true } : {}) });
}
