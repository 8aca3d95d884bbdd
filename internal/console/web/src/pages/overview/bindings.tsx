// Which placements need a person: approvals, open entries, and what cannot be placed.

import { useEffect, useState } from "preact/hooks";

import { request } from "../../lib/http";
import type { Condition, KubeList, KubeObject } from "../../lib/kube";
import { paths } from "../../lib/kube";
import { session } from "../../lib/session";
import { inNamespace } from "../../model/command";
import { Command } from "../../ui/parts";
import type { Need } from "./needs";

interface Binding extends KubeObject {
  spec?: { resource?: { kind?: string; namespace?: string; name?: string } };
  status?: { conditions?: Condition[] };
}

/** All bindings of a large federation are too many to follow. A number of them is read from time to time. */
const every = 30_000;
const pageSize = 500;
const most = 2000;

interface Found {
  needs: Need[];
  known: boolean;
  /** What was not looked at, as a sentence. */
  partial?: string;
}

export function useBindingNeeds(): Found {
  const [found, setFound] = useState<Found>({ needs: [], known: false });
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      if (!document.hidden && session.get().state === "in") {
        try {
          setFound(await read(control.signal));
        } catch {
          if (control.signal.aborted) return;
          setFound({ needs: [], known: false }); // it is not known whether something waits
        }
      }
      if (!control.signal.aborted) timer = setTimeout(() => void look(), every);
    };
    void look();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, []);
  return found;
}

async function read(signal: AbortSignal): Promise<Found> {
  const needs: Need[] = [];
  let next: string | undefined = "";
  let seen = 0;
  while (next !== undefined && seen < most) {
    const page: KubeList<Binding> = await request<KubeList<Binding>>("/federation" + paths.bindings, { query: { limit: pageSize, continue: next }, signal });
    for (const binding of page.items ?? []) needs.push(...of(binding));
    seen += page.items?.length ?? 0;
    next = page.metadata.continue || undefined;
  }
  return { needs: needs.slice(0, 50), known: true, partial: next === undefined ? undefined : `The first ${seen} placements were looked at.` };
}

function of(binding: Binding): Need[] {
  const { kind = "", namespace = "", name = "" } = binding.spec?.resource ?? {};
  const key = `${kind}/${namespace}/${name}`;
  const reference = `${kind.toLowerCase()}/${name}`;
  const what = <>{kind} <strong>{namespace}/{name}</strong></>;
  const needs: Need[] = [];
  const waits = Object.entries(parse(binding.metadata.annotations?.["cellplane.io/rollout-waits"])).filter(([, text]) => /approv/i.test(text));
  if (waits.length > 0) {
    needs.push({ key: "approve/" + key, level: "warn", what: <>The rollout of {what} waits for an approval</>, why: waits.map(([cluster, text]) => `${cluster}: ${text}`).join("; "),
      todo: <Command>{`cellplane rollout approve ${reference}${inNamespace(namespace)}`}</Command> });
  }
  const entry = binding.status?.conditions?.find((c) => c.type === "EntryOpen" && c.status === "True");
  if (entry) needs.push({ key: "entry/" + key, level: "warn", what: <>{what} is in the hands of a member</>, why: entry.message, since: entry.lastTransitionTime });
  const scheduled = binding.status?.conditions?.find((c) => c.type === "Scheduled");
  if (scheduled?.status === "False") {
    needs.push({ key: "placed/" + key, level: "bad", what: <>{what} cannot be placed</>, why: scheduled.message, since: scheduled.lastTransitionTime,
      todo: <Command>{`cellplane schedule explain ${reference}${inNamespace(namespace)}`}</Command> });
  }
  const applied = binding.status?.conditions?.find((c) => c.type === "FullyApplied");
  if (applied?.status === "False" && applied.reason === "FullyAppliedFailed" && Date.now() - Date.parse(applied.lastTransitionTime ?? "") > 60_000 && !entry) {
    needs.push({ key: "applied/" + key, level: "warn", what: <>{what} is not applied in all of its clusters</>, why: applied.message, since: applied.lastTransitionTime });
  }
  return needs;
}

function parse(text: string | undefined): Record<string, string> {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    if (typeof value !== "object" || value === null) return {};
    return Object.fromEntries(Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === "string"));
  } catch {
    return {};
  }
}
