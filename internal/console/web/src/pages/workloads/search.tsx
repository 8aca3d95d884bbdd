// Search over all kinds and namespaces. What is federated has a binding, so the bindings are the index of everything.

import { useEffect } from "preact/hooks";

import { discover, idOf, pathOf, rank, type Kind } from "../../lib/discovery";
import { paths } from "../../lib/kube";
import { href, replaceQuery, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import type { Row } from "../../lib/table";
import { inNamespace, quoted } from "../../model/command";
import { Browse, Counted, NothingFound, usePages, type BrowseColumn } from "../../ui/browse";
import { Age, Command, Failure, Head, Panel, Status } from "../../ui/parts";
import { Field } from "../pods/list";

export function SearchPage() {
  const query = useValue(route).query;
  const { all, error, loaded } = useValue(discover());
  useEffect(() => void discover());
  const [namespace, name, labels, chosen] = ["namespace", "name", "labels", "kind"].map((key) => query.get(key) ?? "") as [string, string, string, string];
  const kinds = all.filter((kind) => kind.verbs.includes("list") && kind.verbs.includes("get")).sort((a, b) => rank(a) - rank(b) || (a.kind < b.kind ? -1 : 1));
  const kind = kinds.find((k) => idOf(k) === chosen);
  return (
    <>
      <Head document="Workloads" title="Workloads" lead="What runs in the federation: its objects, and where they are placed." />
      <Panel>
        <form class="body filters" role="search" aria-label="Filter workloads" onSubmit={(event) => event.preventDefault()}>
          <Field name="name" value={name} label="Name" placeholder="a part of it" first />
          <div><label for="workloads-kind">Kind</label>
            <select id="workloads-kind" value={chosen} onChange={(event) => replaceQuery({ kind: event.currentTarget.value })}>
              <option value="">all that is placed</option>
              {kinds.map((k) => <option key={idOf(k)} value={idOf(k)}>{k.kind}{k.group && rank(k) > 10 ? ` (${k.group})` : ""}</option>)}
            </select>
          </div>
          <Field name="namespace" value={namespace} label="Namespace" placeholder="all" />
          {kind ? <Field name="labels" value={labels} label="Labels" placeholder="app=web" /> : null}
        </form>
        {error && !loaded ? <Failure error={error} what="the kinds of this federation" /> : chosen && !kind ? null : kind
          ? <Objects key={chosen} kind={kind} namespace={namespace} name={name} labels={labels} />
          : <Placed namespace={namespace} name={name} kinds={all} />}
      </Panel>
      <Command>{kind ? [`kubectl get ${kind.resource}${kind.namespaced ? inNamespace(namespace) || " -A" : ""}`, labels ? `-l ${quoted(labels)}` : ""].filter(Boolean).join(" ") : `kubectl get resourcebindings${inNamespace(namespace) || " -A"}`}</Command>
    </>
  );
}

function matching(words: string): ((row: Row) => boolean) | undefined {
  const wanted = words.toLowerCase();
  return wanted ? (row) => (row.metadata.name ?? "").includes(wanted) : undefined;
}

const clear = () => replaceQuery({ name: undefined, namespace: undefined, labels: undefined });

/** Objects lists one kind as the server does. */
function Objects({ kind, namespace, name, labels }: { kind: Kind; namespace: string; name: string; labels: string }) {
  const pages = usePages(pathOf(kind, kind.namespaced ? namespace : ""), { labelSelector: labels }, matching(name), name);
  const columns: BrowseColumn[] = [
    { title: kind.kind, width: "minmax(180px, 2fr)", show: (row) => <a class="name" href={href(["workloads", idOf(kind), row.metadata.namespace ?? "-", row.metadata.name ?? ""])} title={row.metadata.name}>{row.metadata.name}</a> },
    ...(kind.namespaced && !namespace ? [{ title: "Namespace", width: "minmax(90px, 1fr)", show: (row) => row.metadata.namespace } satisfies BrowseColumn] : []),
    ...pages.primary.filter((title) => title !== "Name" && title !== "Age").slice(0, 4).map((title): BrowseColumn => ({ title, width: "minmax(80px, 1fr)", show: (_, cell) => cell(title) })),
    { title: "Age", width: "90px", wide: true, show: (row) => <Age time={row.metadata.creationTimestamp} /> },
  ];
  return <><div class="body line-top"><Counted of={pages} /></div><Browse of={pages} columns={columns} what={kind.resource} label={kind.resource} empty={<NothingFound what={kind.resource} clear={clear} />} /></>;
}

/** Placed lists the bindings. The name of a binding is that of the object, and its kind. */
function Placed({ namespace, name, kinds }: { namespace: string; name: string; kinds: Kind[] }) {
  const path = "/federation" + (namespace ? paths.bindings.replace("resourcebindings", `namespaces/${encodeURIComponent(namespace)}/resourcebindings`) : paths.bindings);
  const wanted = name.toLowerCase();
  const pages = usePages(path, {}, wanted ? (row) => split(row).name.includes(wanted) : undefined, name);
  const byKind = new Map<string, Kind>();
  for (const kind of [...kinds].sort((a, b) => rank(b) - rank(a))) byKind.set(kind.kind.toLowerCase(), kind);
  const columns: BrowseColumn[] = [
    { title: "Workload", width: "minmax(180px, 2fr)", show: (row) => {
      const found = split(row);
      const kind = byKind.get(found.kind);
      return kind ? <a class="name" href={href(["workloads", idOf(kind), row.metadata.namespace ?? "-", found.name])} title={found.name}>{found.name}</a> : found.name;
    } },
    { title: "Kind", width: "minmax(100px, 1fr)", show: (row) => byKind.get(split(row).kind)?.kind ?? split(row).kind },
    ...(namespace ? [] : [{ title: "Namespace", width: "minmax(90px, 1fr)", show: (row) => row.metadata.namespace } satisfies BrowseColumn]),
    { title: "Placed", width: "minmax(80px, 1fr)", wide: true, show: (_, cell) => <Said value={cell("Scheduled")} /> },
    { title: "Applied", width: "minmax(80px, 1fr)", wide: true, show: (_, cell) => <Said value={cell("FullyApplied")} /> },
    { title: "Age", width: "90px", wide: true, show: (row) => <Age time={row.metadata.creationTimestamp} /> },
  ];
  return <><div class="body line-top"><Counted of={pages} /></div><Browse of={pages} columns={columns} what="placements" label="Placed workloads" empty={<NothingFound what="placed workloads" clear={clear} />} /></>;
}

function split(row: Row): { name: string; kind: string } {
  const text = row.metadata.name ?? "";
  const at = text.lastIndexOf("-");
  return { name: text.slice(0, Math.max(0, at)), kind: text.slice(at + 1) };
}

function Said({ value }: { value: string }) {
  return <Status level={value === "True" ? "ok" : value === "False" ? "bad" : "unknown"}>{value === "True" ? "yes" : value === "False" ? "no" : "–"}</Status>;
}
