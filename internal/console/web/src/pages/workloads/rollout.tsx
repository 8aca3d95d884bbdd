// The rolling update of a workload with its bounds, over the time since the page was opened.

import { useEffect, useRef, useState } from "preact/hooks";

import { clock, duration } from "../../lib/time";
import { inNamespace } from "../../model/command";
import { rolloutOf, stagesOf, type Rollout } from "../../model/rollout";
import type { Binding, Template } from "../../model/binding";
import { object } from "../../model/json";
import { Command, Panel, Status, Table } from "../../ui/parts";
import { Approval, Pausing } from "./approve";
import type { About } from "./workload";

export interface Sample {
  at: number;
  pods: number;
  updated: number;
  available: number;
  most?: number;
  least?: number;
  replicas: number;
}

/** Half an hour of samples, one per second at most. */
const kept = 1800;
const interval = 1000;

/** useSamples keeps what the rollout was like, from when the page was opened. */
export function useSamples(template: Template | undefined, binding: Binding | undefined): Sample[] {
  const samples = useRef<Sample[]>([]);
  const latest = useRef<Rollout | undefined>(undefined);
  const [, render] = useState(0);
  const current = (latest.current = template && binding ? rolloutOf(template, binding) : undefined);
  useEffect(() => {
    const take = () => {
      const now = latest.current;
      if (!now || document.hidden) return;
      samples.current.push({ at: Date.now(), pods: now.pods, updated: now.updated, available: now.available, most: now.most, least: now.least, replicas: now.replicas });
      if (samples.current.length > kept) samples.current.splice(0, samples.current.length - kept);
      render((n) => n + 1);
    };
    // What changes within the interval is not missed.
    take();
    const timer = setInterval(take, interval);
    return () => clearInterval(timer);
  }, [current?.pods, current?.updated, current?.available, current?.most, current?.least]);
  return samples.current;
}

export function RolloutPanel({ about, samples }: { about: About; samples: Sample[] }) {
  const { template, binding, reference, namespace } = about;
  if (!binding || object(template.spec)["template"] === undefined) return null;
  const rollout = rolloutOf(template, binding);
  if (rollout.clusters.length === 0) return null;
  const stages = stagesOf(binding);
  const done = rollout.done && stages.waiting === "";
  return (
    <Panel title="Rollout" note={`${rollout.updated} of ${rollout.replicas} updated, ${rollout.available} available`}
      actions={<><Status level={stages.failed.length > 0 && !done ? "bad" : stages.waiting ? "warn" : done ? "ok" : rollout.paused ? "warn" : "busy"}>{stages.waiting ? "waits for approval" : done ? "complete" : rollout.paused ? "paused" : "under way"}</Status><Pausing about={about} /></>}>
      {stages.waiting !== "" || (stages.failed.length > 0 && !rollout.done) ? <Approval about={about} stages={stages} /> : null}
      <div class="body"><Chart samples={samples} rollout={rollout} /></div>
      <Table label="The rollout by cluster" rows={rollout.clusters} id={(c) => c.name} columns={[
        { title: "Cluster", show: (c) => <strong>{c.name}</strong> },
        { title: "Replicas", number: true, show: (c) => c.replicas },
        { title: "Pods", number: true, show: (c) => c.pods },
        { title: "Updated", number: true, show: (c) => c.updated },
        { title: "Available", number: true, show: (c) => c.available },
        { title: "May", number: true, show: (c) => <span class="mono" title="Its part of maxSurge and maxUnavailable">{c.may || "–"}</span> },
        { title: "State", show: (c) => <span class={"wrap " + (c.done ? "" : "soft")}>{c.state}</span> },
      ]} />
      <div class="body line-top commands"><Command>{`cellplane rollout ${rollout.done ? "status" : "explain"} ${reference}${inNamespace(namespace)}`}</Command></div>
    </Panel>
  );
}

const width = 800;
const height = 180;
const left = 34;
const foot = 18;

function Chart({ samples, rollout }: { samples: Sample[]; rollout: Rollout }) {
  const first = samples[0]?.at ?? Date.now();
  const last = Math.max(samples.at(-1)?.at ?? first, first + 30_000);
  const top = Math.max(1, ...samples.map((s) => Math.max(s.pods, s.most ?? 0, s.replicas)));
  const x = (at: number) => left + ((width - left - 4) * (at - first)) / (last - first);
  const y = (n: number) => 6 + (height - foot - 6) * (1 - n / (top * 1.06));
  const line = (of: (s: Sample) => number | undefined) => {
    let path = "";
    let before: number | undefined;
    for (const sample of samples) {
      const value = of(sample);
      if (value === undefined) {
        before = undefined;
        continue;
      }
      path += before === undefined ? `M${x(sample.at).toFixed(1)} ${y(value).toFixed(1)}` : value === before ? "" : `H${x(sample.at).toFixed(1)}V${y(value).toFixed(1)}`;
      before = value;
    }
    const end = samples.at(-1);
    return end && before !== undefined ? path + `H${x(end.at).toFixed(1)}` : path;
  };
  const now = samples.at(-1);
  const steps = ticks(top);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={now ? `Since ${duration(now.at - first)}: now ${now.pods} pods, ${now.available} available, ${now.updated} updated${now.most !== undefined ? `; at most ${now.most} pods and at least ${now.least} available are allowed` : ""}` : "Nothing yet"}>
        {steps.map((n) => <g key={n}><line x1={left} x2={width} y1={y(n)} y2={y(n)} class="grid" /><text x={left - 6} y={y(n) + 4} text-anchor="end">{n}</text></g>)}
        <text x={left} y={height - 3}>{clock(first)}</text><text x={width - 4} y={height - 3} text-anchor="end">{clock(last)}</text>
        <path d={line((s) => s.most)} class="bound" /><path d={line((s) => s.least)} class="bound least" />
        <path d={line((s) => s.updated)} class="updated" /><path d={line((s) => s.available)} class="available" /><path d={line((s) => s.pods)} class="pods" />
      </svg>
      <figcaption class="legend">
        <span><i class="stroke pods" />pods {rollout.pods}</span><span><i class="stroke available" />available {rollout.available}</span><span><i class="stroke updated" />updated {rollout.updated}</span>
        {rollout.most !== undefined ? <span><i class="stroke bound" />allowed: at most {rollout.most} pods, at least {rollout.least} available</span> : null}
        {rollout.told ? <span class="faint">by what clusters were told: at most {rollout.told.pods}, at least {rollout.told.available}</span> : null}
      </figcaption>
    </figure>
  );
}

function ticks(top: number): number[] {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000].find((s) => top / s <= 5) ?? 100_000;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, i) => i * step);
}

