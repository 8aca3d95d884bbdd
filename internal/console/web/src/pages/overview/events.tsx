// What goes on: events about cells, members, and placements.

import { useCollection, type Snapshot } from "../../lib/collection";
import { timeOf, type KubeEvent } from "../../lib/kube";
import { href } from "../../lib/route";
import { Age, Empty, Failure, Panel, Stale, Status, Waiting } from "../../ui/parts";

/** Only events that say something about the federation are asked for: those of workloads are too many, and are on their own pages. */
const selectors = [
  "involvedObject.kind=Cell",
  "involvedObject.kind=CellTopology",
  "involvedObject.kind=Cluster",
  "reason=EvictWorkloadFromClusterSucceed",
  "reason=ScheduleBindingFailed",
  "reason=RollBackSucceed",
  "reason=EntryOpen",
];

const most = 12;

/** useEvents follows the events of some field selectors, the newest first. */
export function useEvents(fields: string[]): { events: KubeEvent[]; snapshots: Snapshot<KubeEvent>[] } {
  // The number of selectors of a page never changes.
  const snapshots = fields.map((fieldSelector) => useCollection<KubeEvent>("/federation/api/v1/events", { fieldSelector }));
  const seen = new Map<string, KubeEvent>();
  for (const snapshot of snapshots) for (const event of snapshot.items) seen.set(event.metadata.uid ?? "", event);
  return { events: [...seen.values()].sort((a, b) => timeOf(b) - timeOf(a)), snapshots };
}

export function GoingOn() {
  const { events, snapshots } = useEvents(selectors);
  const failure = snapshots.find((s) => !s.loaded && s.error)?.error;
  return (
    <Panel title="What goes on" note="cells, members and placements" actions={<Stale of={snapshots} />}>
      {events.length > 0 ? <EventList events={events.slice(0, most)} /> : failure ? <Failure error={failure} what="events" /> : snapshots.every((s) => s.loaded) ? <Empty title="It is quiet">Nothing has happened to cells, members or placements in the last hour.</Empty> : <Waiting />}
    </Panel>
  );
}

export function EventList({ events }: { events: KubeEvent[] }) {
  return (
    <ul class="rows">
      {events.map((event) => {
        const about = event.involvedObject;
        const count = event.series?.count ?? event.count ?? 1;
        const name = [about?.namespace && about.namespace !== "default" ? about.namespace : "", about?.name].filter(Boolean).join("/");
        const to = about?.kind === "Cluster" ? href(["clusters", about.name ?? ""]) : about?.kind === "Cell" ? href(["cells"], { cell: about.name }) : about?.kind === "CellTopology" ? href(["cells"]) : undefined;
        return (
          <li key={event.metadata.uid}>
            <Status level={event.type === "Warning" ? "warn" : "ok"}>{""}</Status>
            <div class="grow">
              <div><span class="faint">{about?.kind}</span> {to ? <a href={to}>{name}</a> : <strong>{name}</strong>} <span class="faint small">{event.reason}{count > 1 ? ` ×${count}` : ""}</span></div>
              <p class="soft small wrap">{event.message ?? event.note}</p>
            </div>
            <span class="when"><Age time={timeOf(event)} /></span>
          </li>
        );
      })}
    </ul>
  );
}
