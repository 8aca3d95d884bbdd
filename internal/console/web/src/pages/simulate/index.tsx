// What the federation says about a manifest before it is created.

import { useState } from "preact/hooks";

import type { Page } from "..";
import { useCollection } from "../../lib/collection";
import { discover, idOf, pathOf, type Kind } from "../../lib/discovery";
import { fromFailure } from "../../lib/errors";
import { request } from "../../lib/http";
import { paths, type Cluster, type ClusterLedger } from "../../lib/kube";
import { quantity, show } from "../../lib/quantity";
import { href } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { health } from "../../model/cluster";
import { untolerated, type Template } from "../../model/binding";
import { fits } from "../../model/fits";
import { identify, requestsOf, selecting, type Named, type Policy } from "../../model/manifest";
import { icons } from "../../ui/icons";
import { Badge, Command, Empty, Head, Panel, Shown, Status, Table } from "../../ui/parts";

export const simulate: Page = { id: "simulate", title: "Simulate", key: "s", icon: icons.simulate, render: () => <Simulate /> };

interface Accepted {
  object: Template;
  kind: Kind;
  exists: boolean;
}

const example = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: default
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/web:1
        resources: {requests: {cpu: 500m, memory: 256Mi}}
`;

function Simulate() {
  const kinds = useValue(discover());
  const [manifest, setManifest] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [accepted, setAccepted] = useState<Accepted | null>(null);
  const check = async () => {
    setBusy(true);
    setProblem("");
    setAccepted(null);
    try {
      setAccepted(await dryRun(manifest, kinds.all));
    } catch (cause) {
      setProblem(cause instanceof Refusal ? cause.message : fromFailure(cause).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Head document="Simulate" title="Simulate" lead="What the federation says about a manifest before it is created. Nothing is stored." />
      <Panel title="Manifest" actions={<><button type="button" class="plain" onClick={() => setManifest(example)}>Example</button><button type="button" class="primary" disabled={busy || manifest.trim() === "" || !kinds.loaded} onClick={() => void check()}>Check</button></>}>
        <textarea class="yaml paste" data-filter aria-label="Manifest as YAML or JSON" placeholder="Paste one object as YAML or JSON" spellcheck={false} autocomplete="off" value={manifest}
          onInput={(event) => setManifest(event.currentTarget.value)} onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void check();
          }} />
        {problem ? <div class="body line-top"><p class="problem" role="alert">{problem}</p></div> : null}
      </Panel>
      {accepted ? <Said of={accepted} /> : null}
      <Panel title="Where it would go, and what it would cost">
        <div class="body commands">
          <p class="soft">The scheduler runs in the engines and in the command line, not in the gateway, so a browser cannot ask it. This command decides as an engine would, with every score, and prints the cost:</p>
          <Command>cellplane schedule simulate -f web.yaml</Command>
        </div>
      </Panel>
    </>
  );
}

class Refusal extends Error {}

/** dryRun lets the server check a manifest as if it were created, or replaced if it exists. */
async function dryRun(manifest: string, kinds: Kind[]): Promise<Accepted> {
  const named: Named = identify(manifest);
  if (named.problem) throw new Refusal(named.problem);
  const [group, version] = named.apiVersion.includes("/") ? named.apiVersion.split("/", 2) as [string, string] : ["", named.apiVersion];
  const kind = kinds.find((k) => k.group === group && k.kind === named.kind);
  if (!kind) throw new Refusal(`The federation serves no kind ${named.kind} in ${named.apiVersion}.`);
  const json = manifest.trimStart().startsWith("{");
  const path = pathOf({ ...kind, version }, kind.namespaced ? named.namespace || "default" : "");
  const options = { contentType: json ? "application/json" : "application/yaml", query: { dryRun: "All", fieldValidation: "Strict", fieldManager: "cellplane-console" } };
  try {
    return { object: await request<Template>(path, { ...options, method: "POST", body: manifest }), kind: { ...kind, version }, exists: false };
  } catch (cause) {
    const error = fromFailure(cause);
    if (error.status !== 409 || error.reason !== "AlreadyExists") throw cause;
    // Server-side apply checks a change of what exists.
    return { object: await request<Template>(`${path}/${encodeURIComponent(named.name)}`, { ...options, contentType: "application/apply-patch+yaml", query: { ...options.query, force: true }, method: "PATCH", body: manifest }), kind: { ...kind, version }, exists: true };
  }
}

function Said({ of: { object: found, kind, exists } }: { of: Accepted }) {
  const { namespace = "", name = "" } = found.metadata;
  const root = "/federation/apis/policy.karmada.io/v1alpha1";
  const own = useCollection<Policy>(namespace ? `${root}/namespaces/${encodeURIComponent(namespace)}/propagationpolicies` : `${root}/propagationpolicies`);
  const wide = useCollection<Policy>(`${root}/clusterpropagationpolicies`);
  const policies = [...selecting(namespace ? own.items : [], found), ...selecting(wide.items, found)];
  return (
    <>
      <Panel title="The federation accepts it" actions={<Status level="ok">{exists ? "it exists, and would be changed" : "it would be created"}</Status>}>
        <ul class="rows">
          <li><div class="grow">{kind.kind} <strong>{namespace ? namespace + "/" : ""}{name}</strong></div>{exists ? <a href={href(["workloads", idOf(kind), namespace || "-", name])}>Show it as it is</a> : null}</li>
          {policies.length > 0 ? policies.map((p) => <li key={p.metadata.uid}><div class="grow">Selected by {p.metadata.namespace ? "PropagationPolicy" : "ClusterPropagationPolicy"} <strong>{p.metadata.name}</strong></div>{p.unsure ? <Badge level="warn">if its expressions match</Badge> : null}</li>)
            : own.loaded && wide.loaded ? <li><Status level="warn">No policy selects it</Status><p class="grow soft small">It would be stored, and no cluster would get it.</p></li>
            : own.error || wide.error ? <li><Status level="unknown">Which policies select it is not known</Status><p class="grow soft small">{(own.error ?? wide.error)!.message}</p></li> : null}
        </ul>
      </Panel>
      {requestsOf(found) ? <RoomFor of={found} /> : null}
    </>
  );
}

/** RoomFor shows what the ledgers say about pods of this size. It is not a decision. */
function RoomFor({ of: found }: { of: Template }) {
  const clusters = useCollection<Cluster>(paths.clusters);
  const ledgers = useCollection<ClusterLedger>(paths.ledgers);
  const requests = requestsOf(found) ?? {};
  return (
    <Panel title="Room for pods of this size" note={Object.entries(requests).map(([k, v]) => `${show(k, quantity(v))} ${k}`).join(", ") || "nothing is requested"}>
      <Shown of={clusters} what="clusters">{(items) => items.length === 0 ? <Empty title="No clusters yet" /> : (
        <Table label="Room by cluster" rows={items} id={(c) => c.metadata.name ?? ""} columns={[
          { title: "Cluster", show: (c) => <a class="name" href={href(["clusters", c.metadata.name ?? ""])}>{c.metadata.name}</a> },
          { title: "State", show: (c) => <Status level={health(c).level} title={health(c).why}>{health(c).text}</Status> },
          { title: "Free nodes hold", number: true, show: (c) => { const ledger = ledgers.items.find((l) => l.metadata.name === c.metadata.name); if (!ledger) return <span class="faint">unknown</span>; const n = fits(ledger, requests); return n === Infinity ? "any number" : `${n} pods`; } },
          { title: "Taints", show: (c) => untolerated(c.spec?.taints, []).map((t) => `${t.key}:${t.effect}`).join(", ") || <span class="faint">none</span> },
        ]} />
      )}</Shown>
      <p class="body line-top small soft">Counted from the free room of nodes in the ledgers, without what is promised to others and without taints and labels of nodes. The scheduler counts all of that.</p>
    </Panel>
  );
}
