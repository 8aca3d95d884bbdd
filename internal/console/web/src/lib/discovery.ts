// The kinds that the federation serves.

import { Backoff } from "./backoff";
import { ApiError, fromFailure } from "./errors";
import { request } from "./http";
import { onOtherUser, session } from "./session";
import { Value } from "./signal";

export interface Kind {
  group: string;
  version: string;
  kind: string;
  /** Its plural name. */
  resource: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
}

interface Discovery {
  items?: {
    metadata?: { name?: string };
    versions?: { version: string; resources?: { resource: string; responseKind?: { kind?: string }; scope?: string; verbs?: string[]; shortNames?: string[] }[] }[];
  }[];
}

const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

export interface Kinds {
  all: Kind[];
  loaded: boolean;
  error?: ApiError;
}

const kinds = new Value<Kinds>({ all: [], loaded: false });
const keep = 5 * 60_000;
const backoff = new Backoff();
/** When they are read again. */
let due = 0;
/** It counts the users. */
let asker = 0;

/** discover returns the kinds, each in its preferred version. */
export function discover(): Value<Kinds> {
  if (Date.now() >= due && session.get().state === "in") {
    due = Infinity; // until there is an answer
    void read(asker);
  }
  return kinds;
}

onOtherUser(() => {
  asker++;
  due = 0;
  kinds.set({ all: [], loaded: false });
});
// With a new token it is worth trying again at once.
session.subscribe(() => {
  if (session.get().state !== "in" || !kinds.get().error) return;
  due = 0;
  if (kinds.followed) discover();
});

async function read(by: number): Promise<void> {
  try {
    const answers = await Promise.all(["/federation/api", "/federation/apis"].map((path) => request<Discovery>(path, { accept })));
    const all: Kind[] = [];
    const seen = new Set<string>();
    for (const group of answers.flatMap((answer) => answer.items ?? [])) {
      for (const { version, resources } of group.versions ?? []) {
        for (const found of resources ?? []) {
          const name = group.metadata?.name ?? "";
          const key = `${found.resource}.${name}`;
          if (seen.has(key)) continue;
          seen.add(key);
          all.push({ group: name, version, kind: found.responseKind?.kind ?? found.resource, resource: found.resource, namespaced: found.scope === "Namespaced", verbs: found.verbs ?? [], shortNames: found.shortNames ?? [] });
        }
      }
    }
    if (by !== asker) return;
    due = Date.now() + keep;
    backoff.reset();
    kinds.set({ all, loaded: true });
  } catch (cause) {
    if (by !== asker) return;
    const error = fromFailure(cause);
    const pause = backoff.after(error);
    due = Date.now() + pause;
    setTimeout(() => {
      if (kinds.followed) discover();
    }, pause + 1);
    kinds.set({ ...kinds.get(), error });
  }
}

/** pathOf returns where the objects of a kind are, as templates. */
export function pathOf(kind: Pick<Kind, "group" | "version" | "resource">, namespace?: string): string {
  const root = kind.group === "" ? `/federation/api/${kind.version}` : `/federation/apis/${kind.group}/${kind.version}`;
  return root + (namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "") + "/" + kind.resource;
}

/** idOf names a kind in addresses, as kubectl does: deployments.v1.apps. */
export function idOf(kind: Pick<Kind, "group" | "version" | "resource">): string {
  return `${kind.resource}.${kind.version}.${kind.group}`;
}

/** fromId is the inverse of idOf. */
export function fromId(id: string): { resource: string; version: string; group: string } {
  const [resource = "", version = "", ...group] = id.split(".");
  return { resource, version, group: group.join(".") };
}

/** common kinds come first where kinds are chosen, and if several groups have a kind of one name. */
const common = ["deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "services.", "configmaps.", "secrets.", "ingresses.networking.k8s.io"];

export function rank(kind: Kind): number {
  const at = common.indexOf(`${kind.resource}.${kind.group}`);
  return at < 0 ? common.length : at;
}
