// Where a workload runs, and why.

import type { Snapshot } from "../../lib/collection";
import { useCollection } from "../../lib/collection";
import { condition, paths, type Cluster, type ClusterLedger } from "../../lib/kube";
import { quantity, show } from "../../lib/quantity";
import { href } from "../../lib/route";
import { describeAffinity, divided, division, untolerated, type Binding } from "../../model/binding";
import { inNamespace } from "../../model/command";
import { health } from "../../model/cluster";
import { fits, promisedTo } from "../../model/fits";
import { Age, Badge, Command, Empty, Panel, Shown, Status, Table } from "../../ui/parts";
import type { About } from "./workload";

export function Where({ about, bindings }: { about: About; bindings: Snapshot<Binding> }) {
  const { binding, namespace, template } = about;
  if (!binding) {
    return (
      <Panel title="Where it runs">
        <Shown of={bindings} what="bindings">{() => (
          <Empty title="No policy selects it">
            <p>It is stored in the federation, and no cluster gets it. Write a PropagationPolicy in {namespace || "a namespace"} that selects {template.kind} {template.metadata.name}.</p>
          </Empty>
        )}</Shown>
      </Panel>
    );
  }
  return <Placed about={about} binding={binding} />;
}

function Placed({ about: { namespace, reference }, binding }: { about: About; binding: Binding }) {
  const clusters = useCollection<Cluster>(paths.clusters);
  const ledgers = useCollection<ClusterLedger>(paths.ledgers);
  const spec = binding.spec ?? {};
  const requests = spec.replicaRequirements?.resourceRequest ?? {};
  const scheduled = condition(binding, "Scheduled");
  const annotations = binding.metadata.annotations ?? {};
  const policy = annotations["propagationpolicy.karmada.io/name"] ? `PropagationPolicy ${annotations["propagationpolicy.karmada.io/namespace"] ?? namespace}/${annotations["propagationpolicy.karmada.io/name"]}`
    : annotations["clusterpropagationpolicy.karmada.io/name"] ? `ClusterPropagationPolicy ${annotations["clusterpropagationpolicy.karmada.io/name"]}` : "none";
  const placement = spec.placement;
  const affinities = placement?.clusterAffinities;
  const observed = binding.status?.schedulerObservedAffinityName;
  const current = affinities?.find((a) => a.affinityName === observed);
  const share = divided(placement);
  const names = [...new Set([...(spec.clusters ?? []).map((c) => c.name), ...(binding.status?.aggregatedStatus ?? []).map((s) => s.clusterName), ...clusters.items.map((c) => c.metadata.name ?? "")])];
  const rows = names.map((name) => {
    const cluster = clusters.items.find((c) => c.metadata.name === name);
    const ledger = ledgers.items.find((l) => l.metadata.name === name);
    return { name, cluster, ledger, target: (spec.clusters ?? []).find((c) => c.name === name), status: (binding.status?.aggregatedStatus ?? []).find((s) => s.clusterName === name), taints: untolerated(cluster?.spec?.taints, placement?.clusterTolerations) };
  }).sort((a, b) => (b.target?.replicas ?? (b.target ? 1 : -1)) - (a.target?.replicas ?? (a.target ? 1 : -1)) || (a.name < b.name ? -1 : 1));
  return (
    <Panel title="Where it runs, and why" note={scheduled?.lastTransitionTime ? <>decided <Age time={binding.status?.lastScheduledTime ?? scheduled.lastTransitionTime} /> ago</> : undefined}>
      <div class="body">
        <dl class="facts">
          <div><dt>Replicas</dt><dd>{spec.replicas ? `${spec.replicas}, ${division(placement)}` : "not counted"}</dd></div>
          <div><dt>Each asks for</dt><dd>{Object.entries(requests).map(([k, v]) => `${show(k, quantity(v))} ${k}`).join(", ") || "nothing"}</dd></div>
          <div><dt>Policy</dt><dd>{policy}</dd></div>
          <div><dt>Clusters it may have</dt><dd>{affinities?.length ? <>{describeAffinity(current ?? affinities[0])} <span class="faint small">group {observed || affinities[0]!.affinityName} of {affinities.length}</span></> : describeAffinity(placement?.clusterAffinity)}</dd></div>
          {placement?.spreadConstraints?.length ? <div><dt>Spread</dt><dd>{placement.spreadConstraints.map((c) => `${c.minGroups ?? 1} to ${c.maxGroups ?? "all"} by ${c.spreadByField ?? c.spreadByLabel ?? ""}`).join(", ")}</dd></div> : null}
          {annotations["cellplane.io/scheduling-profile"] || (spec.schedulerName && spec.schedulerName !== "default-scheduler") ? <div><dt>Profile</dt><dd>{annotations["cellplane.io/scheduling-profile"] ?? spec.schedulerName}</dd></div> : null}
        </dl>
      </div>
      {scheduled?.status === "False" ? <div class="body line-top"><p class="problem" role="alert">{scheduled.message}</p></div> : null}
      {(spec.gracefulEvictionTasks ?? []).map((task) => <div class="body line-top" key={task.fromCluster}><Status level="warn">Leaves {task.fromCluster}: {task.reason} {task.message}</Status></div>)}
      <Shown of={clusters} what="clusters">{() => (
        <Table label="Clusters" rows={rows} id={(r) => r.name} columns={[
          { title: "Cluster", show: (r) => <a class="name" href={href(["clusters", r.name])}>{r.name}</a>, sort: (r) => r.name },
          { title: "Gets", number: true, show: (r) => (r.target ? (share || r.target.replicas ? (r.target.replicas ?? 0) : "it") : <span class="faint">–</span>), sort: (r) => r.target?.replicas ?? 0 },
          { title: "Ready", number: true, show: (r) => (r.status?.status?.readyReplicas !== undefined || r.status?.status?.replicas !== undefined ? (r.status.status.readyReplicas ?? 0) : <span class="faint">–</span>) },
          { title: "State", show: (r) => <State row={r} /> },
          { title: "Room for", number: true, show: (r) => { const n = r.ledger && share ? fits(r.ledger, requests) : undefined; return n === undefined ? <span class="faint">–</span> : <span title="Pods of this size that its free nodes hold, without what is promised and without taints of nodes">{n === Infinity ? "any" : `${n} more`}</span>; } },
          { title: "Promised", number: true, show: (r) => (r.ledger ? promisedTo(r.ledger, spec.resource) || <span class="faint">–</span> : <span class="faint">–</span>) },
          { title: "Why", show: (r) => <Why row={r} requests={requests} /> },
        ]} />
      )}</Shown>
      <div class="body line-top commands"><p class="small soft">This is what the binding and the ledgers say. The scheduler's scores, tier by tier, are computed by the command:</p><Command>{`cellplane schedule explain ${reference}${inNamespace(namespace)}`}</Command></div>
    </Panel>
  );
}

interface Placing {
  name: string;
  cluster?: Cluster;
  ledger?: ClusterLedger;
  target?: { name: string; replicas?: number };
  status?: { applied?: boolean; appliedMessage?: string; health?: string };
  taints: { key: string; effect: string }[];
}

function State({ row: { target, status } }: { row: Placing }) {
  if (!target) return status ? <Status level="busy">is being left</Status> : <span class="faint">not chosen</span>;
  if (!status) return <Status level="busy">on its way</Status>;
  if (!status.applied) return <><Status level="bad">refused</Status><p class="small soft wrap">{status.appliedMessage}</p></>;
  return <Status level={status.health === "Unhealthy" ? "warn" : status.health === "Healthy" ? "ok" : "unknown"}>{status.health === "Healthy" ? "healthy" : status.health === "Unhealthy" ? "not healthy" : "applied"}</Status>;
}

function Why({ row: { target, cluster, taints, ledger }, requests }: { row: Placing; requests: Record<string, string> }) {
  if (!cluster) return <span class="soft small">The cluster is not in the federation any more.</span>;
  const state = health(cluster);
  const reasons = [
    ...(state.level === "bad" || state.level === "unknown" ? [`It is ${state.text.toLowerCase()}.`] : []),
    ...taints.map((t) => `Taint ${t.key}:${t.effect} is not tolerated.`),
    ...(!target && ledger && fits(ledger, requests) === 0 ? ["No node has room for a pod of this size."] : []),
  ];
  if (reasons.length === 0) return target ? <Badge level="ok">chosen</Badge> : <span class="faint small">nothing in the ledgers is against it</span>;
  return <span class="soft small wrap">{reasons.join(" ")}</span>;
}
