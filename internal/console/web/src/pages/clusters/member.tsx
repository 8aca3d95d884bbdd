// One member: its room, what is promised there, its taints and its conditions.

import { escaped, useCollection, useObject } from "../../lib/collection";
import { paths, type Cluster, type ClusterLedger, type KubeEvent, type KubeObject } from "../../lib/kube";
import { digits, quantity, show, total } from "../../lib/quantity";
import { href } from "../../lib/route";
import { useMay } from "../../lib/access";
import { timeOf } from "../../lib/kube";
import { cordoned, health, site } from "../../model/cluster";
import { parseNodes, room } from "../../model/ledger";
import { Age, Badge, Command, Conditions, Empty, Head, Meter, Panel, Shown, Stale, Status, Table } from "../../ui/parts";
import { EventList } from "../overview/events";

interface Profile extends KubeObject {
  spec?: { pricing?: unknown; cost?: unknown } & Record<string, unknown>;
}

export function Member({ name }: { name: string }) {
  const { object: cluster, snapshot } = useObject<Cluster>(paths.clusters, name);
  const ledger = useObject<ClusterLedger>(paths.ledgers, name);
  const crumbs = <span class="crumbs"><a href={href(["clusters"])}>Clusters</a><span class="faint" aria-hidden="true">/</span>{name}</span>;
  if (!cluster) {
    return <><Head document={name} title={crumbs} /><Panel><Shown of={snapshot} what={"cluster " + name}>{() => <Empty title={"There is no cluster " + name}><a href={href(["clusters"])}>Show all clusters</a></Empty>}</Shown></Panel></>;
  }
  const state = health(cluster);
  return (
    <>
      <Head document={name} title={crumbs} status={<Status level={state.level}>{state.text}</Status>} lead={state.why} actions={<Stale of={[snapshot, ledger.snapshot]} />} />
      <Panel title="About"><div class="body"><Facts cluster={cluster} /></div></Panel>
      <Room cluster={cluster} ledger={ledger.object ?? undefined} />
      <div class="columns">
        <Panel title="Promised" note="to pods that do not run yet"><Shown of={ledger.snapshot} what="ledgers">{() => <Promised ledger={ledger.object ?? undefined} />}</Shown></Panel>
        <Taints cluster={cluster} />
        <Panel title="Conditions"><Conditions of={cluster.status?.conditions} /></Panel>
        <Events name={name} />
      </div>
    </>
  );
}

function Facts({ cluster }: { cluster: Cluster }) {
  const name = cluster.metadata.name ?? "";
  const profile = useObject<Profile>(paths.profiles, name).object;
  const nodes = cluster.status?.nodeSummary;
  const kinds = (cluster.status?.apiEnablements ?? []).reduce((n, group) => n + (group.resources?.length ?? 0), 0);
  return (
    <dl class="facts">
      <div><dt>Site</dt><dd>{site(cluster) || "not set"}</dd></div>
      <div><dt>Mode</dt><dd>{cluster.spec?.syncMode === "Pull" ? "agent: the member pulls" : "push: the federation writes"}</dd></div>
      <div><dt>Kubernetes</dt><dd>{cluster.status?.kubernetesVersion ?? "unknown"}</dd></div>
      <div><dt>Nodes</dt><dd>{nodes ? `${nodes.readyNum ?? 0} of ${nodes.totalNum ?? 0} ready` : "unknown"}</dd></div>
      <div><dt>Kinds</dt><dd>{kinds || "unknown"}</dd></div>
      <div><dt>Profile</dt><dd>{profile ? profile.metadata.name : "none"}</dd></div>
      <div><dt>In the federation</dt><dd><Age time={cluster.metadata.creationTimestamp} /></dd></div>
      <div><dt>Address</dt><dd class="mono">{cluster.spec?.apiEndpoint || "–"}</dd></div>
    </dl>
  );
}

const shownFirst = ["cpu", "memory", "pods", "ephemeral-storage"];

function Room({ cluster, ledger }: { cluster: Cluster; ledger?: ClusterLedger }) {
  const summary = total(cluster.status?.resourceSummary?.allocatable);
  const known = ledger ? room(ledger) : undefined;
  const all = { ...known?.allocatable, ...summary };
  const names = Object.keys(all).filter((name) => (all[name] ?? 0) > 0).sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  return (
    <Panel title="Room" note={ledger?.observedAt ? <>last change <Age time={ledger.observedAt} /> ago</> : undefined} actions={<span class="legend"><span><i class="swatch used" />used</span><span><i class="swatch promised" />promised</span><span><i class="swatch free" />free</span></span>}>
      {names.length === 0 ? <Empty title="The capacity is not known yet">It is, once the member has reported its nodes.</Empty> : (
        <>
          <div class="body rooms">
            {names.map((name) => {
              const whole = all[name] ?? 0;
              const promised = known?.promised[name] ?? 0;
              const used = known ? Math.max(0, whole - (known.free[name] ?? 0)) : quantity(cluster.status?.resourceSummary?.allocated?.[name]);
              return (
                <div key={name}>
                  <h3 class="wrap">{name}</h3>
                  <Meter total={whole} segments={[{ value: used, class: "used", label: "used" }, { value: promised, class: "promised", label: "promised" }]}
                    left={<>{show(name, used)} used{promised > 0 ? <> · {show(name, promised)} promised</> : null}</>} right={<>{show(name, Math.max(0, whole - used - promised))} free of {show(name, whole)}</>} />
                </div>
              );
            })}
          </div>
          {ledger?.classes?.length ? <Classes ledger={ledger} largest={known?.largest ?? {}} /> : null}
        </>
      )}
    </Panel>
  );
}

function place(name: string): number {
  const at = shownFirst.indexOf(name);
  return at < 0 ? shownFirst.length : at;
}

function Classes({ ledger, largest }: { ledger: ClusterLedger; largest: Record<string, number> }) {
  return (
    <>
      <div class="body line-top">
        <strong>The largest pod that fits</strong>{" "}
        <span class="soft">{largest["cpu"] === undefined ? "none: no node has room" : `${show("cpu", largest["cpu"] ?? 0)} processors and ${show("memory", largest["memory"] ?? 0)}`}</span>
      </div>
      <Table label="Classes of nodes" rows={ledger.classes ?? []} id={(c) => c.name} columns={[
        { title: "Class of nodes", show: (c) => <span class="mono wrap">{c.name}</span>, sort: (c) => c.name },
        { title: "Nodes", number: true, show: (c) => (c.nodes ?? []).reduce((n, line) => n + parseNodes(line).count, 0), sort: (c) => (c.nodes ?? []).reduce((n, line) => n + parseNodes(line).count, 0) },
        { title: "Each has", show: (c) => <span class="small">{["cpu", "memory"].map((r) => `${show(r, quantity(c.allocatable?.[r]))} ${r}`).join(", ")}</span> },
        { title: "Most free", show: (c) => { const best = (c.nodes ?? []).map(parseNodes).reduce((a, b) => ((b.free["cpu"] ?? 0) > (a.free["cpu"] ?? 0) ? b : a), { count: 0, free: {} }); return <span class="small">{["cpu", "memory"].map((r) => `${show(r, best.free[r] ?? 0)} ${r}`).join(", ")}</span>; } },
        { title: "Taints", show: (c) => (c.taints?.length ? <span class="small">{c.taints.map((t) => `${t.key}:${t.effect}`).join(", ")}</span> : <span class="faint">none</span>) },
      ]} />
    </>
  );
}

function Promised({ ledger }: { ledger?: ClusterLedger }) {
  const all = ledger?.reservations ?? [];
  if (all.length === 0) return <Empty title="Nothing is promised">All pods that were placed here run.</Empty>;
  return (
    <Table label="Reservations" rows={all.slice(0, 100)} id={(r) => `${r.holder}/${r.workload?.kind}/${r.workload?.namespace}/${r.workload?.name}/${r.component ?? ""}`} columns={[
      { title: "Workload", show: (r) => <span class="wrap"><span class="faint">{r.workload?.kind}</span> {r.workload?.namespace ? r.workload.namespace + "/" : ""}{r.workload?.name}</span> },
      { title: "Pods", number: true, show: (r) => `${(r.pods ?? []).reduce((n, p) => n + p.count, 0)} of ${r.total ?? 0}` },
      { title: "Each asks for", show: (r) => <span class="small">{Object.entries(r.requests ?? {}).map(([k, v]) => `${show(k, quantity(v))} ${k}`).join(", ") || "nothing"}</span> },
      { title: "By", show: (r) => r.holder },
    ]} />
  );
}

function Taints({ cluster }: { cluster: Cluster }) {
  const may = useMay({ verb: "update", group: "cluster.karmada.io", resource: "clusters", name: cluster.metadata.name });
  const taints = cluster.spec?.taints ?? [];
  const name = cluster.metadata.name ?? "";
  return (
    <Panel title="Taints" note={taints.length ? digits(taints.length) : undefined}>
      {taints.length === 0 ? <Empty title="No taints">Workloads may be placed here.</Empty> : (
        <ul class="rows">{taints.map((t) => <li key={t.key + t.effect}><div class="grow wrap"><code>{t.key}{t.value ? "=" + t.value : ""}</code></div><Badge level="warn">{t.effect}</Badge></li>)}</ul>
      )}
      {may ? <div class="body line-top commands">{cordoned(cluster) ? <Command>{`cellplane uncordon ${name}`}</Command> : <Command>{`cellplane cordon ${name}`}</Command>}</div> : null}
    </Panel>
  );
}

function Events({ name }: { name: string }) {
  const snapshot = useCollection<KubeEvent>("/federation/api/v1/events", { fieldSelector: `involvedObject.kind=Cluster,involvedObject.name=${escaped(name)}` });
  return (
    <Panel title="Events" actions={<Stale of={[snapshot]} />}>
      <Shown of={snapshot} what="events">{(events) => events.length === 0 ? <Empty title="No events">Nothing has happened to it in the last hour.</Empty> : <EventList events={[...events].sort((a, b) => timeOf(b) - timeOf(a)).slice(0, 12)} />}</Shown>
    </Panel>
  );
}
