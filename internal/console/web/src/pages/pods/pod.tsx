// One pod: its containers, conditions and events, its logs, and a shell in it.

import { useCollection, useObject } from "../../lib/collection";
import { timeOf, type KubeEvent } from "../../lib/kube";
import { digits } from "../../lib/quantity";
import { href, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { useMay } from "../../lib/access";
import { inNamespace } from "../../model/command";
import { clusterOf, levelOfStatus, staleKey, stateOf, statusOf, type Pod } from "../../model/pod";
import { Age, Badge, Command, Conditions, Empty, Head, Panel, Shown, Stale, Status, Table } from "../../ui/parts";
import { EventList } from "../overview/events";
import { Exec } from "./exec";
import { Logs } from "./logs";

const tabs = [["", "About"], ["logs", "Logs"], ["exec", "Shell"]] as const;

export function PodPage({ namespace, name }: { namespace: string; name: string }) {
  const { object: pod, snapshot } = useObject<Pod>(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`, name);
  const tab = useValue(route).query.get("tab") ?? "";
  const crumbs = <span class="crumbs"><a href={href(["pods"])}>Pods</a><span class="faint" aria-hidden="true">/</span><a href={href(["pods"], { namespace })}>{namespace}</a><span class="faint" aria-hidden="true">/</span>{name}</span>;
  if (!pod) {
    return <><Head document={name} title={crumbs} /><Panel><Shown of={snapshot} what={"pods of " + namespace}>{() => <Empty title="There is no such pod">It may have been replaced. <a href={href(["pods"], { namespace })}>Show the pods of {namespace}</a></Empty>}</Shown></Panel></>;
  }
  const status = statusOf(pod);
  const cluster = clusterOf(pod);
  const stale = pod.metadata.annotations?.[staleKey];
  return (
    <>
      <Head document={name} title={crumbs} status={<Status level={levelOfStatus(status)}>{status}</Status>} actions={<Stale of={[snapshot]} />}
        lead={stale ? `Its cluster has not answered since ${new Date(stale).toLocaleString()}. This is how it was seen last.` : pod.status?.message} />
      <nav class="tabs" aria-label="About this pod">{tabs.map(([id, title]) => <a key={id} href={href(["pods", namespace, name], { tab: id })} aria-current={tab === id ? "page" : undefined}>{title}</a>)}</nav>
      {cluster === "" ? <Panel><Empty title="No member has this pod yet">It is a template. Logs and a shell are there when a member runs it.</Empty></Panel> : tab === "logs" ? <Logs pod={pod} /> : tab === "exec" ? <Exec pod={pod} /> : null}
      {tab === "" ? <About pod={pod} /> : null}
    </>
  );
}

function About({ pod }: { pod: Pod }) {
  const { namespace = "", name = "" } = pod.metadata;
  const cluster = clusterOf(pod);
  return (
    <>
      <Panel title="About">
        <div class="body">
          <dl class="facts">
            <div><dt>Cluster</dt><dd>{cluster ? <a href={href(["clusters", cluster])}>{cluster}</a> : "none yet"}</dd></div>
            <div><dt>Node</dt><dd>{pod.spec?.nodeName ? <a href={href(["pods"], { node: pod.spec.nodeName, cluster })}>{pod.spec.nodeName}</a> : "not scheduled"}</dd></div>
            <div><dt>Address</dt><dd class="mono">{pod.status?.podIP ?? "–"}</dd></div>
            <div><dt>Age</dt><dd><Age time={pod.metadata.creationTimestamp} /></dd></div>
            <div><dt>Quality of service</dt><dd>{pod.status?.qosClass ?? "–"}</dd></div>
            <div><dt>Service account</dt><dd>{pod.spec?.serviceAccountName ?? "–"}</dd></div>
          </dl>
        </div>
        {pod.metadata.labels ? <div class="body line-top calm">{Object.entries(pod.metadata.labels).map(([key, value]) => <Badge key={key} outline title={`${key}=${value}`}><span class="clip">{key}={value}</span></Badge>)}</div> : null}
      </Panel>
      <Panel title="Containers"><Containers pod={pod} /></Panel>
      <div class="columns">
        <Panel title="Conditions"><Conditions of={pod.status?.conditions} /></Panel>
        <Events pod={pod} />
      </div>
      <div class="commands"><Command>{`kubectl describe pod ${name}${inNamespace(namespace)}`}</Command><Deletion pod={pod} /></div>
    </>
  );
}

function Deletion({ pod }: { pod: Pod }) {
  const { namespace = "", name = "" } = pod.metadata;
  const may = useMay({ verb: "delete", resource: "pods", namespace, name });
  return may ? <Command>{`kubectl delete pod ${name}${inNamespace(namespace)}`}</Command> : null;
}

function Containers({ pod }: { pod: Pod }) {
  const { namespace = "", name = "" } = pod.metadata;
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? []), ...(pod.status?.ephemeralContainerStatuses ?? [])];
  const rows = [
    ...(pod.spec?.initContainers ?? []).map((container) => ({ container, kind: "init" })),
    ...(pod.spec?.containers ?? []).map((container) => ({ container, kind: "" })),
    ...(pod.spec?.ephemeralContainers ?? []).map((container) => ({ container, kind: "ephemeral" })),
  ].map((row) => ({ ...row, status: statuses.find((s) => s.name === row.container.name) }));
  return (
    <Table label="Containers" rows={rows} id={(r) => r.kind + r.container.name} columns={[
      { title: "Container", show: (r) => <><strong>{r.container.name}</strong> {r.kind ? <Badge>{r.kind}</Badge> : null}</> },
      { title: "State", show: (r) => { const state = stateOf(r.status); return <><Status level={state.level}>{state.text}</Status>{state.why ? <p class="small soft wrap">{state.why}</p> : null}</>; } },
      { title: "Since", show: (r) => <Age time={stateOf(r.status).since} /> },
      { title: "Restarts", number: true, show: (r) => digits(r.status?.restartCount ?? 0) },
      { title: "Image", show: (r) => <span class="mono wrap">{r.container.image}</span> },
      { title: "Requests", show: (r) => <span class="small">{Object.entries(r.container.resources?.requests ?? {}).map(([k, v]) => `${v} ${k}`).join(", ") || <span class="faint">none</span>}</span> },
      { title: "", show: (r) => <span class="nowrap"><a href={href(["pods", namespace, name], { tab: "logs", container: r.container.name })}>Logs</a></span> },
    ]} />
  );
}

function Events({ pod }: { pod: Pod }) {
  const snapshot = useCollection<KubeEvent>(`/api/v1/namespaces/${encodeURIComponent(pod.metadata.namespace ?? "")}/events`, { fieldSelector: `involvedObject.kind=Pod,involvedObject.name=${pod.metadata.name}` });
  return (
    <Panel title="Events" actions={<Stale of={[snapshot]} />}>
      <Shown of={snapshot} what="events">{(events) => {
        const own = events.filter((e) => !e.involvedObject || !("uid" in e.involvedObject) || (e.involvedObject as { uid?: string }).uid === pod.metadata.uid);
        return own.length === 0 ? <Empty title="No events">Nothing has happened to it in the last hour.</Empty> : <EventList events={[...own].sort((a, b) => timeOf(b) - timeOf(a)).slice(0, 30)} />;
      }}</Shown>
    </Panel>
  );
}
