// One workload: where it runs and why, its rollout, pods, events, overrides, limits, and its YAML.

import type { VNode } from "preact";
import { useEffect } from "preact/hooks";

import { useCollection, useObject, type Snapshot } from "../../lib/collection";
import { discover, fromId, pathOf, type Kind } from "../../lib/discovery";
import { condition, paths } from "../../lib/kube";
import { href, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { bindingName, permanentID, type Binding, type Template, type Work } from "../../model/binding";
import { inNamespace, quoted } from "../../model/command";
import { object } from "../../model/json";
import { Browse, Counted, NothingFound, usePages } from "../../ui/browse";
import { Age, Command, Empty, Head, Panel, Shown, Stale, Status } from "../../ui/parts";
import { columnsOf } from "../pods/rows";
import { Changes } from "./changes";
import { Limits } from "./limits";
import { RolloutPanel, useSamples } from "./rollout";
import { Timeline } from "./timeline";
import { Where } from "./where";
import { YamlPanel } from "./yaml";

/** About is what all parts of the page are told. */
export interface About {
  kind: Kind;
  namespace: string;
  name: string;
  template: Template;
  binding?: Binding;
  works: Snapshot<Work>;
  /** As commands name it: deployment/web. */
  reference: string;
}

const tabs = [["", "Placement"], ["pods", "Pods"], ["events", "Events"], ["overrides", "Overrides"], ["limits", "Limits"], ["yaml", "YAML"]] as const;

export function WorkloadPage({ id, namespace: place, name }: { id: string; namespace: string; name: string }) {
  const namespace = place === "-" ? "" : place;
  const known = useValue(discover());
  useEffect(() => void discover());
  const named = fromId(id);
  const kind = known.all.find((k) => k.resource === named.resource && k.group === named.group);
  const crumbs = <span class="crumbs"><a href={href(["workloads"], { kind: id })}>{kind?.kind ?? "Workloads"}</a><span class="faint" aria-hidden="true">/</span>{namespace ? <><a href={href(["workloads"], { kind: id, namespace })}>{namespace}</a><span class="faint" aria-hidden="true">/</span></> : null}{name}</span>;
  if (!kind) return <><Head document={name} title={crumbs} /><Panel><Empty title={known.loaded ? "This federation has no such kind" : "Reading the kinds of this federation"} /></Panel></>;
  return <OfKind kind={{ ...kind, version: named.version || kind.version }} namespace={namespace} name={name} crumbs={crumbs} id={id} />;
}

function OfKind({ kind, namespace, name, crumbs, id }: { kind: Kind; namespace: string; name: string; crumbs: VNode; id: string }) {
  const { object: read, snapshot } = useObject<Template>(pathOf(kind, namespace), name);
  const bindings = "/federation" + (namespace ? paths.bindings.replace("resourcebindings", `namespaces/${encodeURIComponent(namespace)}/resourcebindings`) : paths.bindings.replace("resourcebindings", "clusterresourcebindings"));
  const found = useObject<Binding>(bindings, bindingName(kind.kind, name));
  const binding = found.object ?? undefined;
  const identity = binding?.metadata.labels?.[namespace ? permanentID : permanentID.replace("resourcebinding", "clusterresourcebinding")];
  // Without an identity nothing has been told to clusters. A selector that matches nothing keeps the hook.
  const works = useCollection<Work>("/federation/apis/work.karmada.io/v1alpha1/works", { labelSelector: `${namespace ? permanentID : permanentID.replace("resourcebinding", "clusterresourcebinding")}=${identity ?? "none"}` });
  const tab = useValue(route).query.get("tab") ?? "";
  // Items of lists do not name their kind.
  const template = read ? { ...read, apiVersion: kind.group ? `${kind.group}/${kind.version}` : kind.version, kind: kind.kind } : undefined;
  const samples = useSamples(template, binding);
  if (!template) {
    return <><Head document={name} title={crumbs} /><Panel><Shown of={snapshot} what={kind.resource}>{() => <Empty title={`There is no ${kind.kind} ${name}`}><a href={href(["workloads"], { kind: id })}>Show all</a></Empty>}</Shown></Panel></>;
  }
  const about: About = { kind, namespace, name, template, binding, works, reference: `${kind.kind.toLowerCase()}/${name}` };
  const has = (tab: string) => (tab === "pods" ? selectorOf(template) !== "" : tab === "overrides" ? !!binding : tab === "limits" ? namespace !== "" : tab === "events" ? namespace !== "" : true);
  const scheduled = condition(binding, "Scheduled");
  return (
    <>
      <Head document={name} title={crumbs} actions={<Stale of={[snapshot, found.snapshot]} />}
        status={template.metadata.deletionTimestamp ? <Status level="busy">Leaving</Status> : binding ? <Status level={scheduled?.status === "True" ? "ok" : scheduled?.status === "False" ? "bad" : "unknown"} title={scheduled?.message}>{scheduled?.status === "True" ? "Placed" : scheduled?.status === "False" ? "Cannot be placed" : "Not placed yet"}</Status> : <Status level="unknown">In no cluster</Status>}
        lead={<>Created <Age time={template.metadata.creationTimestamp} /> ago, generation {template.metadata.generation ?? "–"}</>} />
      <nav class="tabs" aria-label="About this workload">{tabs.filter(([key]) => has(key)).map(([key, title]) => <a key={key} href={href(["workloads", id, namespace || "-", name], { tab: key })} aria-current={tab === key ? "page" : undefined}>{title}</a>)}</nav>
      {tab === "pods" ? <Pods about={about} /> : tab === "events" ? <Timeline about={about} /> : tab === "overrides" ? <Changes about={about} /> : tab === "limits" ? <Limits about={about} /> : tab === "yaml" ? <YamlPanel about={about} />
        : <><RolloutPanel about={about} samples={samples} /><Where about={about} bindings={found.snapshot} /></>}
    </>
  );
}

/** selectorOf returns what a workload selects its pods by; empty if it has none that a list can use. */
export function selectorOf(template: Template): string {
  const labels = object(object(template.spec?.["selector"])["matchLabels"]);
  const nodes = object(object(object(template.spec?.["template"])["metadata"])["labels"]);
  const used = Object.keys(labels).length > 0 ? labels : template.kind === "Job" ? {} : Object.keys(object(template.spec?.["selector"])).length > 0 ? nodes : {};
  return Object.entries(used).map(([key, value]) => `${key}=${String(value)}`).join(",");
}

function Pods({ about: { namespace, template } }: { about: About }) {
  const selector = selectorOf(template);
  const pages = usePages(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`, { labelSelector: selector });
  return (
    <>
      <Panel title="Pods" note={selector} actions={<Counted of={pages} />}>
        <Browse of={pages} columns={columnsOf({ namespace: false })} what="pods" label="Pods of this workload" empty={<NothingFound what="pods" />} />
      </Panel>
      <Command>{`kubectl get pods${inNamespace(namespace)} -l ${quoted(selector)}`}</Command>
    </>
  );
}
