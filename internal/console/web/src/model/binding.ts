// Bindings: what is placed where. And Works: what clusters are told.

import type { Condition, KubeObject, Resources, Taint } from "../lib/kube";

export interface Toleration {
  key?: string;
  operator?: string;
  value?: string;
  effect?: string;
}

export interface Affinity {
  affinityName?: string;
  clusterNames?: string[];
  exclude?: string[];
  labelSelector?: { matchLabels?: Record<string, string>; matchExpressions?: unknown[] };
  fieldSelector?: { matchExpressions?: { key?: string; operator?: string; values?: string[] }[] };
}

export interface Placement {
  clusterAffinity?: Affinity;
  clusterAffinities?: Affinity[];
  clusterTolerations?: Toleration[];
  spreadConstraints?: { spreadByField?: string; spreadByLabel?: string; minGroups?: number; maxGroups?: number }[];
  replicaScheduling?: {
    replicaSchedulingType?: string;
    replicaDivisionPreference?: string;
    weightPreference?: { dynamicWeight?: string; staticWeightList?: { weight?: number; targetCluster?: Affinity }[] };
  };
}

export interface Binding extends KubeObject {
  spec?: {
    resource?: { apiVersion?: string; kind?: string; namespace?: string; name?: string };
    replicas?: number;
    replicaRequirements?: { resourceRequest?: Resources; priorityClassName?: string };
    clusters?: { name: string; replicas?: number }[];
    placement?: Placement;
    schedulerName?: string;
    gracefulEvictionTasks?: { fromCluster?: string; reason?: string; message?: string; creationTimestamp?: string; replicas?: number }[];
    suspension?: { dispatching?: boolean; scheduling?: boolean };
  };
  status?: {
    conditions?: Condition[];
    schedulerObservedAffinityName?: string;
    lastScheduledTime?: string;
    aggregatedStatus?: { clusterName: string; applied?: boolean; appliedMessage?: string; health?: string; status?: Reported }[];
  };
}

export interface Reported {
  replicas?: number;
  readyReplicas?: number;
  updatedReplicas?: number;
  availableReplicas?: number;
  resourceTemplateGeneration?: number;
  generation?: number;
  observedGeneration?: number;
}

export interface Work extends KubeObject {
  spec?: { workload?: { manifests?: Template[] } };
  status?: { conditions?: Condition[] };
}

/** A template is any object; what is read of it is checked where it is read. */
export interface Template extends KubeObject {
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

export const permanentID = "resourcebinding.karmada.io/permanent-id";

/** bindingName returns the name of the binding of an object. */
export function bindingName(kind: string, name: string): string {
  return (name.replaceAll(":", ".") + "-" + kind).toLowerCase();
}

/** clusterOfWork returns the cluster that a Work is for. */
export function clusterOfWork(work: Work): string {
  return (work.metadata.namespace ?? "").replace(/^karmada-es-/, "");
}

export function divided(placement: Placement | undefined): boolean {
  return placement?.replicaScheduling?.replicaSchedulingType === "Divided";
}

/** division says how replicas are divided, as `cellplane schedule explain` does. */
export function division(placement: Placement | undefined): string {
  const scheduling = placement?.replicaScheduling;
  if (!divided(placement)) return "every cluster runs all replicas";
  if (scheduling?.replicaDivisionPreference === "Aggregated") return "divided among as few clusters as possible";
  if (scheduling?.weightPreference?.dynamicWeight) return "divided by free capacity";
  return "divided by fixed weights";
}

export function describeAffinity(affinity: Affinity | undefined): string {
  if (!affinity) return "all clusters";
  const parts: string[] = [];
  if (affinity.clusterNames?.length) parts.push(affinity.clusterNames.join(", "));
  for (const [key, value] of Object.entries(affinity.labelSelector?.matchLabels ?? {})) parts.push(`${key}=${value}`);
  if (affinity.labelSelector?.matchExpressions?.length) parts.push(JSON.stringify(affinity.labelSelector.matchExpressions));
  for (const e of affinity.fieldSelector?.matchExpressions ?? []) parts.push(`${e.key} ${e.operator} ${(e.values ?? []).join(", ")}`);
  const text = parts.length > 0 ? parts.join("; ") : "all clusters";
  return affinity.exclude?.length ? `${text}, without ${affinity.exclude.join(", ")}` : text;
}

/** untolerated returns the taints that keep new replicas away. */
export function untolerated(taints: Taint[] | undefined, tolerations: Toleration[] | undefined): Taint[] {
  return (taints ?? []).filter((taint) => taint.effect !== "PreferNoSchedule" && !(tolerations ?? []).some((t) => tolerates(t, taint)));
}

function tolerates(t: Toleration, taint: Taint): boolean {
  if (t.effect && t.effect !== taint.effect) return false;
  if (t.key && t.key !== taint.key) return false;
  if (t.operator === "Exists") return true;
  return !!t.key && (t.value ?? "") === (taint.value ?? "");
}
