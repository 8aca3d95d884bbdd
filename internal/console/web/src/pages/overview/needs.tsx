// What needs a person.

import type { ComponentChildren } from "preact";

import { condition, type Cell, type CellTopology, type Cluster } from "../../lib/kube";
import { href } from "../../lib/route";
import { useNow } from "../../lib/signal";
import { backupLag, cellHealth, cellRows, running } from "../../model/cells";
import { health } from "../../model/cluster";
import type { Level } from "../../ui/icons";
import { Age, Panel, Status } from "../../ui/parts";
import { useBindingNeeds } from "./bindings";
import type { Read } from "./picture";

export interface Need {
  key: string;
  level: Level;
  what: ComponentChildren;
  why?: string;
  /** What to do about it. */
  todo?: ComponentChildren;
  since?: string;
}

export function NeedsPerson({ cells, topologies, clusters }: Read) {
  const now = useNow(5000);
  const bindings = useBindingNeeds();
  const needs = [...ofCells(cells.items, topologies.items[0], now), ...ofClusters(clusters.items), ...bindings.needs];
  // Who may not see something is not told that all is well.
  if (needs.length === 0 && !(cells.loaded && topologies.loaded && clusters.loaded && bindings.known)) return null;
  if (needs.length === 0) {
    return <div class="calm"><Status level="ok">Nothing needs a person</Status>{bindings.partial ? <span class="faint small">{bindings.partial}</span> : null}</div>;
  }
  return (
    <Panel title="Needs a person" note={needs.length > 1 ? `${needs.length} things` : undefined}>
      <ul class="rows">
        {needs.map((need) => (
          <li key={need.key}>
            <Status level={need.level}>{""}</Status>
            <div class="grow"><div>{need.what}</div>{need.why ? <p class="soft small wrap">{need.why}</p> : null}{need.todo ? <div class="small">{need.todo}</div> : null}</div>
            {need.since ? <span class="when"><Age time={need.since} /></span> : null}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function ofCells(cells: Cell[], topology: CellTopology | undefined, now: number): Need[] {
  const needs: Need[] = [];
  for (const row of cellRows(cells, topology)) {
    const state = cellHealth(row);
    const link = <a href={href(["cells"], { cell: row.name })}>Cell {row.name}</a>;
    const since = condition(row.cell, "Ready")?.lastTransitionTime;
    if (state.level === "bad") {
      needs.push({ key: "cell/" + row.name, level: "bad", what: <>{link} is {state.text.toLowerCase()}</>, why: state.why, since,
        todo: row.topology?.state === "Failed" ? <>When it runs again: <code>cellplane cells rejoin {row.name}</code></> : <>If it does not come back: <code>cellplane cells failover {row.name}</code></> });
    }
    const blocked = condition(row.cell, "FailoverBlocked");
    if (blocked?.status === "True") needs.push({ key: "blocked/" + row.name, level: "bad", what: <>The failover of {link} is blocked</>, why: blocked.message, since: blocked.lastTransitionTime });
    const backed = condition(row.cell, "BackedUp");
    if (row.topology && row.topology.state !== "Failed" && backed?.status === "False" && backed.reason !== "NoBackupCell") {
      needs.push({ key: "backup/" + row.name, level: "warn", what: <>The backup of {link} is not complete ({backupLag(row.cell, now).text})</>, why: backed.message, since: backed.lastTransitionTime });
    }
  }
  const settled = condition(topology, "Settled");
  const change = running(topology);
  if (settled?.status === "False" && !change) needs.push({ key: "topology", level: "warn", what: <a href={href(["cells"])}>The topology of cells is not settled</a>, why: settled.message, since: settled.lastTransitionTime });
  return needs;
}

function ofClusters(clusters: Cluster[]): Need[] {
  return clusters.flatMap((cluster) => {
    const state = health(cluster);
    const name = cluster.metadata.name ?? "";
    if (state.level !== "bad" && state.level !== "unknown" && !(state.level === "warn" && state.text === "Ready")) return [];
    return [{ key: "cluster/" + name, level: state.level, what: <><a href={href(["clusters", name])}>Cluster {name}</a> {state.level === "warn" ? "has nodes that are not ready" : `is ${state.text.toLowerCase()}`}</>, why: state.why,
      since: condition(cluster, "Ready")?.lastTransitionTime }];
  });
}
