// What a cluster is told, against the template.

import type { KubeObject } from "../lib/kube";
import { object } from "./json";

export interface Difference {
  path: string;
  template?: unknown;
  cluster?: unknown;
}

/** Fields that the server or the federation keeps. */
const servers = ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink", "ownerReferences", "finalizers"];

function marked(key: string): boolean {
  const domain = key.split("/")[0] ?? "";
  return key.includes("/") && /(^|\.)(karmada|cellplane)\.io$/.test(domain);
}

/** cleaned leaves only what people write. */
export function cleaned(source: KubeObject): Record<string, unknown> {
  const { metadata, ...rest } = source as KubeObject & Record<string, unknown>;
  delete rest["status"];
  const kept: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(metadata)) {
    if (servers.includes(key)) continue;
    if (key !== "labels" && key !== "annotations") {
      kept[key] = value;
      continue;
    }
    const entries = Object.entries(object(value)).filter(([name]) => !marked(name) && name !== "kubectl.kubernetes.io/last-applied-configuration" && name !== "deployment.kubernetes.io/revision");
    if (entries.length > 0) kept[key] = Object.fromEntries(entries);
  }
  return { ...rest, metadata: kept };
}

/** differences compares two objects field by field. Lists of named elements are compared by name. */
export function differences(template: KubeObject, cluster: KubeObject): Difference[] {
  const found: Difference[] = [];
  compare("", cleaned(template), cleaned(cluster), found);
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function compare(path: string, a: unknown, b: unknown, found: Difference[]): void {
  if (Object.is(a, b)) return;
  const [x, y] = [fieldsOf(a), fieldsOf(b)];
  if (x && y) {
    for (const key of new Set([...Object.keys(x), ...Object.keys(y)])) compare(path === "" ? key : /^\[/.test(key) ? path + key : /^[\w-]+$/.test(key) ? `${path}.${key}` : `${path}[${key}]`, x[key], y[key], found);
    return;
  }
  if (JSON.stringify(a) !== JSON.stringify(b)) found.push({ path, template: a, cluster: b });
}

function fieldsOf(value: unknown): Record<string, unknown> | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (!Array.isArray(value)) return value as Record<string, unknown>;
  const names = value.map((item, i) => (typeof object(item)["name"] === "string" ? `[${String(object(item)["name"])}]` : `[${i}]`));
  return new Set(names).size === names.length ? Object.fromEntries(value.map((item, i) => [names[i]!, item])) : Object.fromEntries(value.map((item, i) => [`[${i}]`, item]));
}
