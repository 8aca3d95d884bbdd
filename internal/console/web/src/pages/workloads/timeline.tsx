// Events of the template, its binding, its Works and its copies in clusters, in one line of time.

import { useCollection } from "../../lib/collection";
import { timeOf, type KubeEvent } from "../../lib/kube";
import { href } from "../../lib/route";
import { inNamespace } from "../../model/command";
import { clusterKey } from "../../model/pod";
import { Age, Badge, Command, Empty, Failure, Panel, Stale, Status, Waiting } from "../../ui/parts";
import type { About } from "./workload";

const most = 200;

export function Timeline({ about: { namespace, name, template, binding, works } }: { about: About }) {
  const at = `/namespaces/${encodeURIComponent(namespace)}/events`;
  const work = works.items[0]?.metadata.name ?? "none"; // all Works of a binding have one name
  const bindingName = binding?.metadata.name ?? "none";
  const own = `involvedObject.kind=${template.kind},involvedObject.name=${name}`;
  const members = useCollection<KubeEvent>("/api/v1" + at, { fieldSelector: own });
  const federation = useCollection<KubeEvent>("/federation/api/v1" + at, { fieldSelector: own });
  const placing = useCollection<KubeEvent>("/federation/api/v1" + at, { fieldSelector: `involvedObject.kind=ResourceBinding,involvedObject.name=${bindingName}` });
  const applying = useCollection<KubeEvent>("/federation/api/v1/events", { fieldSelector: `involvedObject.kind=Work,involvedObject.name=${work}` });
  const all = [members, federation, placing, applying];
  const seen = new Map<string, KubeEvent>();
  for (const snapshot of all) for (const event of snapshot.items) seen.set(event.metadata.uid ?? "", event);
  const events = [...seen.values()].sort((a, b) => timeOf(b) - timeOf(a));
  const failed = all.find((s) => s.error && !s.loaded)?.error;
  return (
    <>
      <Panel title="Events" note="the newest first" actions={<Stale of={all} />}>
        {events.length === 0 ? (failed && all.every((s) => !s.loaded) ? <Failure error={failed} what="events" /> : all.some((s) => !s.loaded && !s.error) ? <Waiting /> : <Empty title="No events">Nothing has happened to it in the last hour.</Empty>) : (
          <ul class="rows line-of-time">
            {events.slice(0, most).map((event) => <Entry key={event.metadata.uid} event={event} />)}
          </ul>
        )}
        {failed && events.length > 0 ? <div class="body line-top small soft">Some events are left out: {failed.message}</div> : null}
      </Panel>
      <Command>{`kubectl events${inNamespace(namespace)} --for ${template.kind?.toLowerCase()}/${name}`}</Command>
    </>
  );
}

function Entry({ event }: { event: KubeEvent }) {
  const kind = event.involvedObject?.kind ?? "";
  const cluster = event.metadata.annotations?.[clusterKey] ?? (kind === "Work" ? event.involvedObject?.namespace?.replace(/^karmada-es-/, "") : undefined);
  const count = event.series?.count ?? event.count ?? 1;
  return (
    <li>
      <Status level={event.type === "Warning" ? "warn" : "ok"}>{""}</Status>
      <div class="grow">
        <div><strong>{event.reason}</strong>{count > 1 ? ` ×${count}` : ""} <Badge outline>{kind === "ResourceBinding" ? "placement" : kind === "Work" ? "delivery" : cluster ? "copy" : "template"}</Badge> {cluster ? <a class="small" href={href(["clusters", cluster])}>{cluster}</a> : null}</div>
        <p class="soft small wrap">{event.message ?? event.note}</p>
      </div>
      <span class="when"><Age time={timeOf(event)} /></span>
    </li>
  );
}
