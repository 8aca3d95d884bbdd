// The table of all members.

import { useCollection } from "../../lib/collection";
import { paths, type Cluster, type ClusterLedger } from "../../lib/kube";
import { href, replaceQuery, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { health, site } from "../../model/cluster";
import { Badge, Command, Empty, Head, Panel, Shown, Stale, Status, Table, type Column } from "../../ui/parts";
import { RoomMeter } from "../overview/picture";

interface Row {
  cluster: Cluster;
  ledger?: ClusterLedger;
}

export function Members() {
  const clusters = useCollection<Cluster>(paths.clusters);
  const ledgers = useCollection<ClusterLedger>(paths.ledgers);
  const filter = useValue(route).query.get("filter") ?? "";
  return (
    <>
      <Head document="Clusters" title="Clusters" lead="The members: the Kubernetes clusters where the pods of the federation run." actions={<Stale of={[clusters, ledgers]} />} />
      <Panel title="Members" note={clusters.loaded ? String(clusters.items.length) : ""}
        actions={<input class="filter" data-filter type="search" placeholder="Filter by name, site or taint" aria-label="Filter" value={filter} onInput={(event) => replaceQuery({ filter: event.currentTarget.value })} />}>
        <Shown of={clusters} what="clusters">{(items) => <MemberTable rows={items.map((cluster) => ({ cluster, ledger: ledgers.items.find((l) => l.metadata.name === cluster.metadata.name) }))} filter={filter} />}</Shown>
      </Panel>
    </>
  );
}

function MemberTable({ rows, filter }: { rows: Row[]; filter: string }) {
  if (rows.length === 0) return <Empty title="No clusters yet"><p>Add one with</p><Command>cellplane join NAME --member-kubeconfig FILE</Command></Empty>;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter(({ cluster }) => {
    const text = [cluster.metadata.name, site(cluster), cluster.spec?.syncMode, health(cluster).text, ...(cluster.spec?.taints ?? []).map((t) => t.key)].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (shown.length === 0) return <Empty title="No cluster matches"><button type="button" onClick={() => replaceQuery({ filter: undefined })}>Show all</button></Empty>;
  return <Table label="Clusters" rows={shown} columns={columns} id={({ cluster }) => cluster.metadata.uid ?? ""} />;
}

const columns: Column<Row>[] = [
  { title: "Cluster", show: ({ cluster }) => <a class="name" href={href(["clusters", cluster.metadata.name ?? ""])}>{cluster.metadata.name}</a>, sort: ({ cluster }) => cluster.metadata.name ?? "" },
  { title: "State", show: ({ cluster }) => { const state = health(cluster); return <Status level={state.level} title={state.why}>{state.text}</Status>; }, sort: ({ cluster }) => health(cluster).level },
  { title: "Site", show: ({ cluster }) => site(cluster) || <span class="faint">–</span>, sort: ({ cluster }) => site(cluster) },
  { title: "Mode", show: ({ cluster }) => (cluster.spec?.syncMode === "Pull" ? "agent" : "push"), sort: ({ cluster }) => cluster.spec?.syncMode ?? "" },
  { title: "Version", show: ({ cluster }) => <span class="nowrap">{cluster.status?.kubernetesVersion ?? "–"}</span>, sort: ({ cluster }) => cluster.status?.kubernetesVersion ?? "" },
  { title: "Nodes", number: true, show: ({ cluster }) => { const n = cluster.status?.nodeSummary; return n ? `${n.readyNum ?? 0} / ${n.totalNum ?? 0}` : "–"; }, sort: ({ cluster }) => cluster.status?.nodeSummary?.totalNum ?? 0 },
  { title: "Processors", show: (row) => <RoomMeter {...row} resource="cpu" /> },
  { title: "Memory", show: (row) => <RoomMeter {...row} resource="memory" /> },
  { title: "Taints", show: ({ cluster }) => { const taints = cluster.spec?.taints ?? []; return taints.length ? <Badge level="warn" title={taints.map((t) => `${t.key}:${t.effect}`).join(", ")}>{taints.length === 1 ? taints[0]!.key : taints.length}</Badge> : <span class="faint">none</span>; } },
];
