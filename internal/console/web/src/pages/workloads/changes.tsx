// What each cluster is told, against the template.

import { clusterOfWork, type Template, type Work } from "../../model/binding";
import { differences, type Difference } from "../../model/difference";
import { list, object, text } from "../../model/json";
import { Badge, Command, Empty, Panel, Shown } from "../../ui/parts";
import type { About } from "./workload";

export function Changes({ about: { works, template, binding } }: { about: About }) {
  const identity = Object.entries(binding?.metadata.labels ?? {}).find(([key]) => key.endsWith("resourcebinding.karmada.io/permanent-id"));
  return (
    <>
      <Shown of={works} what="works">{(items) => items.length === 0 ? <Panel><Empty title="No cluster has been told anything yet" /></Panel> : <>
        {[...items].sort((a, b) => (clusterOfWork(a) < clusterOfWork(b) ? -1 : 1)).map((work) => <OfCluster key={work.metadata.uid} work={work} template={template} />)}
      </>}</Shown>
      {identity ? <Command>{`kubectl get works -A -l ${identity[0]}=${identity[1]} -o yaml`}</Command> : null}
    </>
  );
}

/** policiesOf returns the override policies that were applied. */
function policiesOf(work: Work): string[] {
  return ["policy.karmada.io/applied-cluster-overrides", "policy.karmada.io/applied-overrides"].flatMap((key) => {
    try {
      return list(JSON.parse(work.metadata.annotations?.[key] ?? "[]")).map((entry) => (key.includes("cluster-") ? "ClusterOverridePolicy " : "OverridePolicy ") + text(object(entry)["policyName"]));
    } catch {
      return [];
    }
  });
}

/** Fields that the federation itself sets, so that bounds hold and replicas are divided. */
const federations = /^spec\.(replicas|strategy|updateStrategy|paused|parallelism|completions)\b/;

function OfCluster({ work, template }: { work: Work; template: Template }) {
  const manifest = work.spec?.workload?.manifests?.[0];
  const found = manifest ? differences(template, manifest) : [];
  const policies = [...new Set(policiesOf(work))];
  return (
    <Panel title={clusterOfWork(work)} note={found.length === 0 ? "as the template" : `${found.length} ${found.length === 1 ? "difference" : "differences"}`} actions={policies.map((p) => <Badge key={p}>{p}</Badge>)}>
      {!manifest ? <Empty title="Its Work has no manifest" /> : found.length === 0 ? <Empty title="It gets the template as it is" /> : (
        <ul class="diff">{found.map((d) => <One key={d.path} of={d} />)}</ul>
      )}
    </Panel>
  );
}

function One({ of: { path, template, cluster } }: { of: Difference }) {
  return (
    <li>
      <div><code class="wrap">{path}</code>{federations.test(path) ? <span class="faint small"> its part of the placement and the rollout</span> : null}</div>
      {template !== undefined ? <pre class="less"><span aria-hidden="true">− </span><span class="hidden">template: </span>{shown(template)}</pre> : null}
      {cluster !== undefined ? <pre class="more"><span aria-hidden="true">+ </span><span class="hidden">cluster: </span>{shown(cluster)}</pre> : null}
    </li>
  );
}

function shown(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, typeof value === "object" ? 1 : 0);
}
