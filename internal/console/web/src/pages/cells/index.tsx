// The cells: the map of slots, the change under way, and plans of changes.

import { useMemo, useState } from "preact/hooks";

import type { Page } from "..";
import { useMay } from "../../lib/access";
import { useCollection } from "../../lib/collection";
import { condition, paths, type Cell, type CellTopology } from "../../lib/kube";
import { digits } from "../../lib/quantity";
import { replaceQuery, route } from "../../lib/route";
import { useNow, useValue } from "../../lib/signal";
import { backupLag, cellHealth, cellRows, running, slotCount, type CellRow } from "../../model/cells";
import { listed, type Plan } from "../../model/edit";
import { compile, slotOf } from "../../model/slots";
import { icons } from "../../ui/icons";
import { Badge, Conditions, Empty, Head, Panel, Shown, Stale, Status, Table, type Column } from "../../ui/parts";
import { Change } from "./change";
import { bitmap, SlotMapView } from "./map";
import { Planner } from "./planner";

export const cells: Page = { id: "cells", title: "Cells", key: "k", icon: icons.cells, render: () => <Cells /> };

function Cells() {
  const known = useCollection<Cell>(paths.cells);
  const topologies = useCollection<CellTopology>(paths.topologies);
  const topology = topologies.items[0];
  return (
    <>
      <Head document="Cells" title="Cells" lead="The control plane is cut into cells, each with its own store and API server. The hash of a workload's name gives one of 16 384 slots, and each slot belongs to one cell."
        status={topology ? <Badge outline title="The generation of the topology. Writers with an older one are refused.">epoch {topology.metadata.generation}</Badge> : null} actions={<Stale of={[known, topologies]} />} />
      <Shown of={topologies} what="topology of cells">{() => (
        topology ? <Loaded cells={known.items} topology={topology} /> : <Panel><Empty title="There is no topology yet">The hub manager makes it when the first cell is added.</Empty></Panel>
      )}</Shown>
    </>
  );
}

function Loaded({ cells: known, topology }: { cells: Cell[]; topology: CellTopology }) {
  const rows = cellRows(known, topology);
  const [plan, setPlan] = useState<Plan | null>(null);
  const may = useMay({ verb: "update", group: "cellplane.io", resource: "celltopologies", name: "default" });
  const { query } = useValue(route);
  const chosen = query.get("cell") ?? "";
  const spec = JSON.stringify(topology.spec?.cells ?? []);
  const map = useMemo(() => (topology.spec?.cells?.length ? compile(listed(topology.spec.cells)) : undefined), [spec]);
  const change = topology.status?.change;
  const moved = useMemo(() => (change && change.epoch === topology.metadata.generation ? bitmap(change.movedSlots) : undefined), [change?.movedSlots, change?.epoch, topology.metadata.generation]);
  const colors = Object.fromEntries(rows.map((row) => [row.name, row.color]));
  return (
    <>
      {running(topology) ? <Change topology={topology} may={may === true} /> : null}
      <Panel title="Slots" note={`${digits(slotCount)}, coloured by their owner`} actions={<Find />}>
        {map ? <SlotMapView map={map} moved={moved} colors={colors} chosen={chosen} plan={plan?.moves} found={found(query.get("find"))} /> : <Empty title="No cell owns slots" />}
        <ul class="body legend slots-legend">
          {rows.filter((row) => row.topology).map((row) => (
            <li key={row.name}>
              <button type="button" class="plain" aria-pressed={chosen === row.name} onClick={() => replaceQuery({ cell: chosen === row.name ? undefined : row.name })}>
                <i class="swatch" style={{ background: row.color }} />{row.name} <span class="faint">{((100 * row.slots) / slotCount).toFixed(1)}%</span>
              </button>
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Cells"><Table label="Cells" rows={rows} columns={columns} id={(row) => row.name} /></Panel>
      <div class="columns">
        <Planner topology={topology} spares={rows.filter((row) => row.cell && !row.topology).map((row) => row.name)} plan={plan} onPlan={setPlan} may={may === true} colors={colors} />
        <About rows={rows} chosen={chosen} topology={topology} />
      </div>
    </>
  );
}

/** found returns the slot of an object that is written as namespace/name. */
function found(text: string | null): { slot: number; text: string } | undefined {
  if (!text) return undefined;
  const at = text.indexOf("/");
  const [namespace, name] = at < 0 ? ["default", text] : [text.slice(0, at), text.slice(at + 1)];
  return name ? { slot: slotOf(namespace!, name), text: `${namespace}/${name}` } : undefined;
}

function Find() {
  const { query } = useValue(route);
  return <input class="filter" data-filter type="search" placeholder="Where lives namespace/name?" aria-label="Find the slot of an object" value={query.get("find") ?? ""} onInput={(event) => replaceQuery({ find: event.currentTarget.value })} />;
}

const columns: Column<CellRow>[] = [
  { title: "Cell", show: (row) => <a class="name" href={"#/cells?cell=" + encodeURIComponent(row.name)}><i class="swatch" style={{ background: row.color }} /> {row.name}</a>, sort: (row) => row.name },
  { title: "State", show: (row) => { const state = cellHealth(row); return <Status level={state.level} title={state.why}>{state.text}</Status>; }, sort: (row) => cellHealth(row).text },
  { title: "Weight", number: true, show: (row) => (row.topology ? <>{row.topology.weight ?? 1}{row.topology.targetWeight ? " → " + row.topology.targetWeight : ""}</> : "–"), sort: (row) => row.topology?.weight ?? 0 },
  { title: "Slots", number: true, show: (row) => (row.targetSlots !== row.slots ? <>{digits(row.slots)} → {digits(row.targetSlots)}</> : digits(row.slots)), sort: (row) => row.slots },
  { title: "Backs up", number: true, show: (row) => digits(row.backupSlots), sort: (row) => row.backupSlots },
  { title: "Templates", number: true, show: (row) => (row.cell?.status?.objects ? digits(row.cell.status.objects.templates ?? 0) : "–"), sort: (row) => row.cell?.status?.objects?.templates ?? 0 },
  { title: "Works", number: true, show: (row) => (row.cell?.status?.objects ? digits(row.cell.status.objects.works ?? 0) : "–"), sort: (row) => row.cell?.status?.objects?.works ?? 0 },
  { title: "Backup lag", show: (row) => <Lag row={row} /> },
  { title: "Version", show: (row) => <span class="nowrap">{row.cell?.status?.version ?? "–"}</span>, sort: (row) => row.cell?.status?.version ?? "" },
];

function Lag({ row }: { row: CellRow }) {
  const now = useNow(5000);
  const lag = backupLag(row.cell, now);
  return <Status level={lag.level} title={lag.why}>{lag.text}</Status>;
}

function About({ rows, chosen, topology }: { rows: CellRow[]; chosen: string; topology: CellTopology }) {
  const row = rows.find((r) => r.name === chosen);
  if (!row) return <Panel title="Conditions of the topology"><Conditions of={topology.status?.conditions} /></Panel>;
  const ready = condition(row.cell, "Ready");
  return <Panel title={"Conditions of " + row.name} note={ready?.status === "True" ? undefined : ready?.reason}><Conditions of={row.cell?.status?.conditions} /></Panel>;
}
