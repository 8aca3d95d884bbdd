// All pods, filtered by the server.

import { useEffect, useState } from "preact/hooks";

import { useCollection } from "../../lib/collection";
import { paths, type Cluster } from "../../lib/kube";
import { replaceQuery, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { inNamespace, quoted } from "../../model/command";
import { clusterKey } from "../../model/pod";
import { Browse, Counted, NothingFound, usePages } from "../../ui/browse";
import { Command, Head, Panel } from "../../ui/parts";
import { columnsOf } from "./rows";

const names = ["namespace", "cluster", "phase", "node", "name", "labels"] as const;
type Filter = Record<(typeof names)[number], string>;

export function PodsPage() {
  const query = useValue(route).query;
  const filter = Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""])) as Filter;
  const { path, asked, command } = ask(filter);
  const pages = usePages(path, asked);
  return (
    <>
      <Head document="Pods" title="Pods" lead="The pods of all members. The gateway filters them and sends them page by page." actions={<Counted of={pages} />} />
      <Panel>
        <div class="body"><Filters filter={filter} /></div>
        <Browse of={pages} columns={columnsOf({ namespace: filter.namespace === "", cluster: filter.cluster === "" })} what="pods" label="Pods"
          empty={<NothingFound what="pods" clear={() => replaceQuery(Object.fromEntries(names.map((n) => [n, undefined])))} />} />
      </Panel>
      <Command>{command}</Command>
    </>
  );
}

/** ask says what the server is asked for, and the command for the same. */
function ask(filter: Filter): { path: string; asked: Record<string, string>; command: string } {
  const labels = [filter.labels.trim(), filter.cluster ? `${clusterKey}=${filter.cluster}` : ""].filter(Boolean).join(",");
  const fields = [filter.phase ? `status.phase=${filter.phase}` : "", filter.node ? `spec.nodeName=${filter.node}` : "", filter.name ? `metadata.name=${filter.name}` : ""].filter(Boolean).join(",");
  const path = filter.namespace ? `/api/v1/namespaces/${encodeURIComponent(filter.namespace)}/pods` : "/api/v1/pods";
  const command = ["kubectl get pods" + (inNamespace(filter.namespace) || " -A"), labels ? `-l ${quoted(labels)}` : "", fields ? `--field-selector ${quoted(fields)}` : ""].filter(Boolean).join(" ");
  return { path, asked: { labelSelector: labels, fieldSelector: fields }, command };
}

const phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

function Filters({ filter }: { filter: Filter }) {
  const clusters = useCollection<Cluster>(paths.clusters).items;
  return (
    <form class="filters" role="search" aria-label="Filter pods" onSubmit={(event) => event.preventDefault()}>
      <Field name="labels" value={filter.labels} label="Labels" placeholder="app=web,tier!=test" first />
      <Field name="namespace" value={filter.namespace} label="Namespace" placeholder="all" />
      <div><label for="pods-cluster">Cluster</label>
        <select id="pods-cluster" value={filter.cluster} onChange={(event) => replaceQuery({ cluster: event.currentTarget.value })}>
          <option value="">all</option>
          {[...new Set([...clusters.map((c) => c.metadata.name ?? ""), filter.cluster])].filter(Boolean).map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </div>
      <div><label for="pods-phase">Phase</label>
        <select id="pods-phase" value={filter.phase} onChange={(event) => replaceQuery({ phase: event.currentTarget.value })}>
          <option value="">all</option>
          {phases.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </div>
      <Field name="node" value={filter.node} label="Node" placeholder="all" />
      <Field name="name" value={filter.name} label="Name" placeholder="its whole name" />
    </form>
  );
}

/** Field asks the server when typing has paused. */
export function Field({ name, value, label, placeholder, first }: { name: string; value: string; label: string; placeholder: string; first?: boolean }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => replaceQuery({ [name]: text.trim() }), 350);
    return () => clearTimeout(timer);
  }, [text, value]);
  return (
    <div><label for={"filter-" + name}>{label}</label>
      <input id={"filter-" + name} data-filter={first ? true : undefined} type="search" autocomplete="off" spellcheck={false} placeholder={placeholder} value={text} onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && replaceQuery({ [name]: text.trim() })} />
    </div>
  );
}
