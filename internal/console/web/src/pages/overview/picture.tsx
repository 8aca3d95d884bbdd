// The federation in one picture, from the gateway down to the members.

import { useEffect, useState } from "preact/hooks";

import { request } from "../../lib/http";
import { useNow, useValue } from "../../lib/signal";
import type { Snapshot } from "../../lib/collection";
import { connection } from "../../lib/connection";
import type { Cell, CellTopology, Cluster, ClusterLedger } from "../../lib/kube";
import { digits, show, total } from "../../lib/quantity";
import { href } from "../../lib/route";
import { backupLag, cellHealth, cellRows, keepers, slotCount, type CellRow } from "../../model/cells";
import { cordoned, health } from "../../model/cluster";
import { room } from "../../model/ledger";
import { Badge, Empty, Meter, Shown, Status } from "../../ui/parts";

export interface Read {
  cells: Snapshot<Cell>;
  topologies: Snapshot<CellTopology>;
  clusters: Snapshot<Cluster>;
  ledgers: Snapshot<ClusterLedger>;
}

export function Picture({ cells, topologies, clusters, ledgers }: Read) {
  return (
    <div class="picture">
      <div class="layer">
        <div class="what"><h3>Gateway</h3><p>the only address that clients know</p></div>
        <GatewayLayer />
      </div>
      <div class="joint" aria-hidden="true"><i /></div>
      <div class="layer">
        <div class="what"><h3>Control plane</h3><p>each workload lives in one cell, found by the hash of its name</p></div>
        <div>
          <Shown of={cells} what="cells">{(known) => (
            <Shown of={topologies} what="the topology of cells">{(found) => <CellLayer cells={known} topology={found[0]} />}</Shown>
          )}</Shown>
        </div>
      </div>
      <div class="joint" aria-hidden="true"><i /></div>
      <div class="layer">
        <div class="what"><h3>Members</h3><p>the clusters where pods run</p></div>
        <div><Shown of={clusters} what="clusters">{(known) => <MemberLayer clusters={known} ledgers={ledgers.items} />}</Shown></div>
      </div>
    </div>
  );
}

function GatewayLayer() {
  const { latencies, state } = useValue(connection);
  const [version, setVersion] = useState("");
  useEffect(() => {
    if (state === "up") request<{ gitVersion?: string }>("/version").then((v) => setVersion(v.gitVersion ?? ""), () => setVersion(""));
  }, [state]);
  const sorted = [...latencies].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  return (
    <div class="cards">
      <div class="card">
        <div class="top"><strong>Gateway</strong><span class="end"><Status level={state === "up" ? "ok" : state === "down" ? "bad" : "unknown"}>{state === "up" ? "Serving" : state === "down" ? "No answer" : "Connecting"}</Status></span></div>
        <dl class="pairs">
          <dt>Kubernetes</dt><dd>{version || "–"}</dd>
          <dt title="From this browser">Round trip</dt><dd>{median === undefined ? "–" : `${median < 10 ? median.toFixed(1) : Math.round(median)} ms`}</dd>
        </dl>
        <Spark values={latencies} />
      </div>
    </div>
  );
}

/** Spark draws the last round trips. */
function Spark({ values }: { values: number[] }) {
  const kept = values.slice(-40);
  const top = Math.max(10, ...kept);
  const points = kept.map((v, i) => `${(100 * i) / Math.max(1, kept.length - 1)},${22 - (20 * v) / top}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={`The last ${kept.length} round trips, at most ${Math.round(top)} ms`}>
      {kept.length > 1 ? <polyline points={points} fill="none" stroke="var(--accent)" stroke-width="1.5" vector-effect="non-scaling-stroke" /> : null}
    </svg>
  );
}

function CellLayer({ cells, topology }: { cells: Cell[]; topology: CellTopology | undefined }) {
  const rows = cellRows(cells, topology);
  if (rows.length === 0) return <Empty title="No cells yet"><p>Add one with <code>cellplane cells add</code>.</p></Empty>;
  const owners = rows.filter((row) => row.slots > 0);
  return (
    <div class="site">
      <div class="share" role="img" aria-label={"Slots: " + owners.map((row) => `${row.name} ${percent(row.slots)}`).join(", ")}>
        {owners.map((row) => <i key={row.name} style={{ width: percent(row.slots), background: row.color }} title={`${row.name}: ${row.slots} of ${slotCount} slots`} />)}
      </div>
      <div class="cards">
        <div class="card">
          <div class="top"><strong>hub</strong><span class="end"><Badge outline>what is not cut</Badge></span></div>
          <p class="small soft">Policies, namespaces, rights, clusters and the topology. Cells have copies of what they need.</p>
        </div>
        {rows.map((row) => <CellCard key={row.name} row={row} all={rows} />)}
      </div>
    </div>
  );
}

function CellCard({ row, all }: { row: CellRow; all: CellRow[] }) {
  const now = useNow(5000);
  const state = cellHealth(row);
  const lag = backupLag(row.cell, now);
  const kept = keepers(row, all);
  return (
    <a class={"card marked " + (state.level === "bad" || state.level === "warn" ? state.level : "")} href={href(["cells"], { cell: row.name })} style={{ borderLeftColor: row.color }}>
      <div class="top"><strong class="clip">{row.name}</strong><span class="end"><Status level={state.level} title={state.why}>{state.text}</Status></span></div>
      <dl class="pairs">
        <dt>Share</dt><dd>{percent(row.slots)} <span class="faint">· {digits(row.slots)} slots</span></dd>
        <dt>Templates</dt><dd>{row.cell?.status?.objects ? digits(row.cell.status.objects.templates ?? 0) : "–"}</dd>
        <dt title={lag.why}>Backup lag</dt><dd>{lag.text}</dd>
        <dt title="The cells that have its backup">Kept by</dt><dd title={kept.join(", ")}>{kept.length === 0 ? "nobody" : kept.length > 2 ? `${kept.length} cells` : kept.join(", ")}</dd>
      </dl>
    </a>
  );
}

function MemberLayer({ clusters, ledgers }: { clusters: Cluster[]; ledgers: ClusterLedger[] }) {
  if (clusters.length === 0) return <Empty title="No clusters yet"><p>Add one with <code>cellplane join</code>, or <code>cellplane register</code> if the federation cannot reach it.</p></Empty>;
  const sites = new Map<string, Cluster[]>();
  for (const cluster of clusters) {
    const where = [cluster.spec?.provider, cluster.spec?.region].filter(Boolean).join(" / ");
    sites.set(where, [...(sites.get(where) ?? []), cluster]);
  }
  return (
    <>
      {[...sites].sort(([a], [b]) => (a < b ? -1 : 1)).map(([where, members]) => (
        <div class="site" key={where}>
          {sites.size > 1 || where ? <h4>{where || "No site"}<span class="faint">{members.length} {members.length === 1 ? "cluster" : "clusters"}</span></h4> : null}
          <div class="cards">{members.map((cluster) => <MemberCard key={cluster.metadata.name} cluster={cluster} ledger={ledgers.find((l) => l.metadata.name === cluster.metadata.name)} />)}</div>
        </div>
      ))}
      <p class="legend"><span><i class="swatch used" />used</span><span><i class="swatch promised" />promised to pods that do not run yet</span><span><i class="swatch free" />free</span></p>
    </>
  );
}

function MemberCard({ cluster, ledger }: { cluster: Cluster; ledger?: ClusterLedger }) {
  const state = health(cluster);
  const nodes = cluster.status?.nodeSummary;
  const zone = cluster.spec?.zones?.length ? cluster.spec.zones.join(", ") : cluster.spec?.zone;
  return (
    <a class={"card " + (state.level === "bad" || state.level === "warn" ? state.level : "")} href={href(["clusters", cluster.metadata.name ?? ""])}>
      <div class="top"><strong class="clip">{cluster.metadata.name}</strong><span class="end"><Status level={state.level} title={state.why}>{state.text}</Status></span></div>
      <div class="small soft">{nodes ? `${nodes.readyNum ?? 0} of ${nodes.totalNum ?? 0} nodes` : "nodes unknown"}{zone ? ` · ${zone}` : ""} · {cluster.spec?.syncMode === "Pull" ? "agent" : "push"}{cordoned(cluster) && state.text !== "Cordoned" ? " · cordoned" : ""}</div>
      <RoomMeter cluster={cluster} ledger={ledger} resource="cpu" />
      <RoomMeter cluster={cluster} ledger={ledger} resource="memory" />
    </a>
  );
}

/** RoomMeter shows what is used, promised and free of a resource. */
export function RoomMeter({ cluster, ledger, resource }: { cluster: Cluster; ledger?: ClusterLedger; resource: string }) {
  const summary = cluster.status?.resourceSummary;
  const all = total(summary?.allocatable)[resource] ?? 0;
  const promised = ledger ? (room(ledger).promised[resource] ?? 0) : 0;
  const used = ledger ? Math.max(0, all - (room(ledger).free[resource] ?? 0)) : (total(summary?.allocated)[resource] ?? 0);
  if (all === 0) return <span class="small faint">{resource}: unknown</span>;
  return (
    <Meter total={all} left={resource} right={<>{show(resource, Math.max(0, all - used - promised))} free of {show(resource, all)}</>}
      segments={[{ value: used, class: "used", label: "used" }, { value: promised, class: "promised", label: "promised" }]} />
  );
}

function percent(slots: number): string {
  return ((100 * slots) / slotCount).toFixed(1) + "%";
}
