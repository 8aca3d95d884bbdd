// What has to be known of a manifest before the server reads it: its kind, namespace and name. And what policies would select it.

import type { KubeObject, Resources } from "../lib/kube";
import { quantity } from "../lib/quantity";
import type { Template } from "./binding";
import { list, object, text } from "./json";

export interface Named {
  apiVersion: string;
  kind: string;
  namespace: string;
  name: string;
  problem?: string;
}

/** identify reads the top of a manifest. It is no parser: everything else is left to the server. */
export function identify(manifest: string): Named {
  const trimmed = manifest.trim();
  if (trimmed.startsWith("{")) {
    try {
      const read = object(JSON.parse(trimmed));
      const metadata = object(read["metadata"]);
      return checked({ apiVersion: text(read["apiVersion"]), kind: text(read["kind"]), namespace: text(metadata["namespace"]), name: text(metadata["name"]) });
    } catch {
      return { apiVersion: "", kind: "", namespace: "", name: "", problem: "This is not JSON: look for a missing comma or bracket." };
    }
  }
  const documents = trimmed.split(/^---.*$/m).filter((d) => d.replace(/^\s*#.*$/gm, "").trim() !== "");
  if (documents.length > 1) return { apiVersion: "", kind: "", namespace: "", name: "", problem: "These are several objects. Check one at a time; cellplane schedule simulate takes a workload with its policy." };
  const lines = (documents[0] ?? "").split("\n");
  const top = (key: string) => value(lines.find((line) => line.startsWith(key + ":"))?.slice(key.length + 1));
  const at = lines.findIndex((line) => /^metadata:/.test(line));
  const flow = /^metadata:\s*\{(.*)\}/.exec(lines[at] ?? "")?.[1];
  const named: Record<string, string> = {};
  if (flow !== undefined) {
    for (const key of ["name", "namespace"]) named[key] = value(new RegExp(`(?:^|[,{\\s])${key}:\\s*([^,}]+)`).exec(flow)?.[1]);
  } else if (at >= 0) {
    const indent = /^(\s+)[^\s#]/.exec(lines.slice(at + 1).find((line) => /^\s*[^\s#]/.test(line)) ?? "")?.[1] ?? "  ";
    for (const line of lines.slice(at + 1)) {
      if (/^[^\s#]/.test(line)) break;
      const match = /^(name|namespace):(.*)$/.exec(line.startsWith(indent) ? line.slice(indent.length) : "");
      if (match) named[match[1]!] = value(match[2]);
    }
  }
  return checked({ apiVersion: top("apiVersion"), kind: top("kind"), namespace: named["namespace"] ?? "", name: named["name"] ?? "" });
}

function value(source: string | undefined): string {
  return (source ?? "").replace(/\s#.*$/, "").trim().replace(/^(["'])(.*)\1$/, "$2");
}

function checked(named: Named): Named {
  for (const key of ["apiVersion", "kind", "name"] as const) if (named[key] === "") return { ...named, problem: `The manifest has no ${key === "name" ? "metadata.name" : key}.` };
  return named;
}

export interface Policy extends KubeObject {
  spec?: { resourceSelectors?: { apiVersion?: string; kind?: string; namespace?: string; name?: string; labelSelector?: { matchLabels?: Record<string, string>; matchExpressions?: unknown[] } }[] };
}

/** selecting returns the policies that select an object; unsure if that depends on expressions. */
export function selecting(policies: Policy[], found: Template): (Policy & { unsure: boolean })[] {
  return policies.flatMap((policy) => {
    const matching = (policy.spec?.resourceSelectors ?? []).filter((s) => s.apiVersion === found.apiVersion && s.kind === found.kind
      && (!s.namespace || s.namespace === found.metadata.namespace) && (!s.name || s.name === found.metadata.name)
      && (s.name || Object.entries(s.labelSelector?.matchLabels ?? {}).every(([key, wanted]) => found.metadata.labels?.[key] === wanted)));
    return matching.length > 0 ? [{ ...policy, unsure: matching.every((s) => !s.name && (s.labelSelector?.matchExpressions?.length ?? 0) > 0) }] : [];
  });
}

/** requestsOf adds up what the containers of a pod template ask for; undefined if there is no pod template. */
export function requestsOf(found: Template): Resources | undefined {
  const pod = found.kind === "Pod" ? object(found.spec) : object(object(found.spec?.["template"])["spec"]);
  if (!Array.isArray(pod["containers"])) return undefined;
  const sum: Record<string, number> = {};
  for (const container of list(pod["containers"])) {
    for (const [name, amount] of Object.entries(object(object(object(container)["resources"])["requests"]))) sum[name] = (sum[name] ?? 0) + quantity(typeof amount === "number" ? amount : text(amount));
  }
  return Object.fromEntries(Object.entries(sum).map(([name, amount]) => [name, String(amount)]));
}
