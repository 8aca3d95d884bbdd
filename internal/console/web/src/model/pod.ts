// Pods, as far as the console shows them.

import type { Condition, KubeObject } from "../lib/kube";
import type { Level } from "../ui/icons";

export const clusterKey = "cellplane.io/cluster";
export const staleKey = "cellplane.io/stale-since";

export interface ContainerState {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: { reason?: string; message?: string; exitCode?: number; signal?: number; finishedAt?: string };
}

export interface ContainerStatus {
  name: string;
  ready?: boolean;
  restartCount?: number;
  image?: string;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface Container {
  name: string;
  image?: string;
  ports?: { containerPort: number; protocol?: string; name?: string }[];
  resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
}

export interface Pod extends KubeObject {
  spec?: { nodeName?: string; containers?: Container[]; initContainers?: Container[]; ephemeralContainers?: Container[]; serviceAccountName?: string; priorityClassName?: string };
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    podIP?: string;
    hostIP?: string;
    startTime?: string;
    qosClass?: string;
    conditions?: Condition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
    ephemeralContainerStatuses?: ContainerStatus[];
  };
}

/** levelOfStatus judges the text that the API shows for a pod. */
export function levelOfStatus(status: string): Level {
  if (/^(Running|Succeeded|Completed)$/.test(status)) return "ok";
  if (/BackOff|Err|Failed|OOMKilled|Evicted|Invalid|Unknown|Lost/.test(status)) return "bad";
  if (/^(Pending|ContainerCreating|PodInitializing|Terminating)$|^Init:/.test(status)) return "busy";
  return "unknown";
}

/** stateOf says how a container is. */
export function stateOf(status: ContainerStatus | undefined): { level: Level; text: string; why?: string; since?: string } {
  const state = status?.state;
  if (state?.running) return { level: status?.ready ? "ok" : "busy", text: status?.ready ? "Running" : "Running, not ready", since: state.running.startedAt };
  if (state?.terminated) {
    const { exitCode = 0, reason, message, finishedAt } = state.terminated;
    return { level: exitCode === 0 ? "ok" : "bad", text: reason ?? "Ended", why: [message, exitCode ? `It ended with code ${exitCode}.` : ""].filter(Boolean).join(" "), since: finishedAt };
  }
  if (state?.waiting) return { level: levelOfStatus(state.waiting.reason ?? "Pending"), text: state.waiting.reason ?? "Waiting", why: state.waiting.message };
  return { level: "unknown", text: "Unknown" };
}

/** statusOf says how a pod is in one word. */
export function statusOf(pod: Pod): string {
  if (pod.metadata.deletionTimestamp) return "Terminating";
  for (const status of [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])]) {
    const reason = status.state?.waiting?.reason ?? (status.state?.terminated && status.state.terminated.exitCode !== 0 ? status.state.terminated.reason : undefined);
    if (reason) return reason;
  }
  return pod.status?.reason ?? pod.status?.phase ?? "Unknown";
}

export function clusterOf(object: KubeObject): string {
  return object.metadata.annotations?.[clusterKey] ?? object.metadata.labels?.[clusterKey] ?? "";
}
