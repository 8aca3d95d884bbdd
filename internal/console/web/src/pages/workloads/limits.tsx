// What scales a workload, protects it, and limits it.

import { useCollection } from "../../lib/collection";
import type { Condition, KubeObject, Resources } from "../../lib/kube";
import { quantity, show } from "../../lib/quantity";
import { inNamespace } from "../../model/command";
import { list, object, text, type Fields } from "../../model/json";
import { Badge, Command, Empty, Meter, Panel, Shown, Stale, Status } from "../../ui/parts";
import type { About } from "./workload";

interface Autoscaler extends KubeObject {
  spec?: Fields;
  status?: { currentReplicas?: number; desiredReplicas?: number; currentMetrics?: unknown[]; conditions?: Condition[]; lastScaleTime?: string };
}

interface Quota extends KubeObject {
  spec?: { hard?: Resources; overall?: Resources };
  status?: { hard?: Resources; used?: Resources; overall?: Resources; overallUsed?: Resources };
}

interface Protection extends KubeObject {
  spec?: { resourceSelectors?: { apiGroups?: string[]; kinds?: string[]; namespaces?: string[]; labelSelector?: { matchLabels?: Record<string, string>; matchExpressions?: unknown[] } }[]; action?: string; deletion?: { enabled?: boolean }; scaleDown?: { maxDecrease?: unknown } };
}

export function Limits({ about }: { about: About }) {
  return <><Scaling about={about} /><div class="columns"><Protected about={about} /><Quotas namespace={about.namespace} /></div></>;
}

function Scaling({ about: { namespace, name, kind, reference } }: { about: About }) {
  const at = `/namespaces/${encodeURIComponent(namespace)}`;
  const plain = useCollection<Autoscaler>(`/federation/apis/autoscaling/v2${at}/horizontalpodautoscalers`);
  const federated = useCollection<Autoscaler>(`/federation/apis/autoscaling.karmada.io/v1alpha1${at}/federatedhpas`);
  const about = (autoscaler: Autoscaler) => {
    const target = object(autoscaler.spec?.["scaleTargetRef"]);
    return target["kind"] === kind.kind && target["name"] === name;
  };
  const found = [...federated.items.filter(about).map((a) => ({ kind: "FederatedHPA", autoscaler: a })), ...plain.items.filter(about).map((a) => ({ kind: "HorizontalPodAutoscaler", autoscaler: a }))];
  return (
    <Panel title="Autoscaling" actions={<Stale of={[plain, federated]} />}>
      <Shown of={plain} what="autoscalers">{() => found.length === 0 ? <Empty title="Nothing scales it by itself"><Command>{`kubectl autoscale ${reference}${inNamespace(namespace)} --min 2 --max 10 --cpu 70%`}</Command></Empty> : <>{found.map((f) => <Scaler key={f.kind + f.autoscaler.metadata.name} {...f} />)}</>}</Shown>
    </Panel>
  );
}

function Scaler({ kind, autoscaler: { metadata, spec, status } }: { kind: string; autoscaler: Autoscaler }) {
  const current = list(status?.currentMetrics).map(object);
  return (
    <>
      <div class="body line-top calm"><strong>{kind} {metadata.name}</strong><span>{status?.currentReplicas ?? "–"} replicas, wants {status?.desiredReplicas ?? "–"}, between {String(spec?.["minReplicas"] ?? 1)} and {String(spec?.["maxReplicas"] ?? "–")}</span></div>
      <ul class="rows">
        {list(spec?.["metrics"]).map(object).map((metric, i) => {
          const of = describeMetric(metric);
          const now = current.map(describeMetric).find((c) => c.name === of.name);
          return <li key={i}><div class="grow">{of.name}</div><span>{now?.current ?? "no value yet"} <span class="faint">of {of.target}</span></span></li>;
        })}
        {(status?.conditions ?? []).filter((c) => (c.type === "ScalingLimited" ? c.status === "True" : c.status !== "True")).map((c) => <li key={c.type}><Status level="warn">{c.type}</Status><p class="grow soft small wrap">{c.message}</p></li>)}
      </ul>
    </>
  );
}

function describeMetric(metric: Fields): { name: string; target: string; current: string } {
  const type = text(metric["type"]);
  const body = object(metric[type.charAt(0).toLowerCase() + type.slice(1)]);
  const name = text(body["name"]) || text(object(body["metric"])["name"]) || type;
  return { name: type === "Resource" ? name : `${type} ${name}`, target: valueOf(object(body["target"])), current: valueOf(object(body["current"])) };
}

function valueOf(value: Fields): string {
  if (typeof value["averageUtilization"] === "number") return `${value["averageUtilization"]} %`;
  return text(value["averageValue"]) || text(value["value"]) || "–";
}

function Protected({ about: { kind, namespace, template } }: { about: About }) {
  const policies = useCollection<Protection>("/federation/apis/cellplane.io/v1alpha1/protectionpolicies");
  const label = template.metadata.labels?.["resourcetemplate.karmada.io/deletion-protected"] === "Always";
  const glass = template.metadata.annotations?.["cellplane.io/break-glass"];
  const includes = (all: string[] | undefined, one: string) => !all?.length || all.includes("*") || all.includes(one);
  const matching = policies.items.filter((p) => (p.spec?.resourceSelectors ?? []).some((s) => includes(s.apiGroups, kind.group) && includes(s.kinds, kind.kind) && includes(s.namespaces, namespace)
    && Object.entries(s.labelSelector?.matchLabels ?? {}).every(([key, value]) => template.metadata.labels?.[key] === value)));
  return (
    <Panel title="Protection" actions={<Stale of={[policies]} />}>
      <ul class="rows">
        <li><Status level={label ? "ok" : "unknown"}>{label ? "It cannot be deleted" : "No label protects it from deletion"}</Status></li>
        {glass ? <li><Status level="warn">Protection is off for it</Status><span class="grow soft wrap">{glass}</span></li> : null}
        {matching.map((p) => <li key={p.metadata.name}><div class="grow">{p.metadata.name}{(p.spec?.resourceSelectors ?? []).some((s) => s.labelSelector?.matchExpressions?.length) ? <span class="faint small"> if its expressions match</span> : null}<p class="soft small">{[p.spec?.deletion?.enabled ? "against deletion" : "", p.spec?.scaleDown ? `against losing more than ${String(p.spec.scaleDown.maxDecrease ?? "a part")} of its replicas` : ""].filter(Boolean).join(", ")}</p></div><Badge>{p.spec?.action ?? "Deny"}</Badge></li>)}
      </ul>
      {policies.error && !policies.loaded ? <div class="body line-top small soft">Protection policies are not shown: {policies.error.message}</div> : null}
      <div class="body line-top"><Command>{`kubectl label ${kind.resource} ${template.metadata.name}${inNamespace(namespace)} resourcetemplate.karmada.io/deletion-protected${label ? "-" : "=Always --overwrite"}`}</Command></div>
    </Panel>
  );
}

function Quotas({ namespace }: { namespace: string }) {
  const at = `/namespaces/${encodeURIComponent(namespace)}`;
  const plain = useCollection<Quota>(`/federation/api/v1${at}/resourcequotas`);
  const federated = useCollection<Quota>(`/federation/apis/policy.karmada.io/v1alpha1${at}/federatedresourcequotas`);
  const all = [...federated.items.map((q) => ({ kind: "FederatedResourceQuota", name: q.metadata.name, hard: q.status?.overall ?? q.spec?.overall, used: q.status?.overallUsed })), ...plain.items.map((q) => ({ kind: "ResourceQuota", name: q.metadata.name, hard: q.status?.hard ?? q.spec?.hard, used: q.status?.used }))];
  return (
    <Panel title="Quota" note={namespace} actions={<Stale of={[plain, federated]} />}>
      <Shown of={plain} what="quotas">{() => all.length === 0 ? <Empty title={`Nothing limits ${namespace}`} /> : (
        <div class="body rooms">{all.flatMap((q) => Object.entries(q.hard ?? {}).map(([resource, hard]) => {
          const used = quantity(q.used?.[resource]);
          const base = resource.replace(/^(requests|limits)\./, "");
          return <div key={q.kind + q.name + resource}><h3 class="wrap">{resource} <span class="faint small">{q.kind} {q.name}</span></h3><Meter total={quantity(hard)} segments={[{ value: used, class: "used", label: "used" }]} left={`${show(base, used)} used`} right={`of ${show(base, quantity(hard))}`} /></div>;
        }))}</div>
      )}</Shown>
    </Panel>
  );
}
