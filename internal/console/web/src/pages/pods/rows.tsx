// The rows of a list of pods.

import { href } from "../../lib/route";
import { clusterKey, levelOfStatus, staleKey } from "../../model/pod";
import type { BrowseColumn } from "../../ui/browse";
import { Age, Status } from "../../ui/parts";

/** columnsOf leaves out what the list is about. */
export function columnsOf(options: { namespace?: boolean; cluster?: boolean } = {}): BrowseColumn[] {
  const { namespace = true, cluster = true } = options;
  return [
    { title: "Pod", width: "minmax(180px, 3fr)", show: (row) => <a class="name" href={href(["pods", row.metadata.namespace ?? "", row.metadata.name ?? ""])} title={row.metadata.name}>{row.metadata.name}</a> },
    ...(namespace ? [{ title: "Namespace", width: "minmax(90px, 1fr)", show: (row) => row.metadata.namespace } satisfies BrowseColumn] : []),
    ...(cluster ? [{ title: "Cluster", width: "minmax(90px, 1fr)", show: (row) => {
      const name = row.metadata.annotations?.[clusterKey];
      return name ? <a href={href(["clusters", name])}>{name}</a> : <span class="faint" title="No member has it yet">template</span>;
    } } satisfies BrowseColumn] : []),
    { title: "Ready", width: "60px", wide: true, show: (_, cell) => cell("Ready") },
    { title: "Status", width: "minmax(110px, 1fr)", show: (row, cell) => {
      const stale = row.metadata.annotations?.[staleKey];
      const text = cell("Status");
      return <Status level={stale ? "unknown" : levelOfStatus(text)} title={stale ? `Its cluster has not answered since ${new Date(stale).toLocaleString()}` : text}>{text}</Status>;
    } },
    { title: "Restarts", width: "90px", wide: true, show: (_, cell) => cell("Restarts") },
    { title: "Age", width: "90px", wide: true, show: (row) => <Age time={row.metadata.creationTimestamp} /> },
    { title: "Node", width: "minmax(90px, 1fr)", wide: true, show: (_, cell) => cell("Node") || <span class="faint">–</span> },
  ];
}
