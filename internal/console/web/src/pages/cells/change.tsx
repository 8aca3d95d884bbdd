// The change under way: its phases, its pace, and the way back.

import { useRef, useState } from "preact/hooks";

import { fromFailure } from "../../lib/errors";
import { request } from "../../lib/http";
import { paths, type CellTopology } from "../../lib/kube";
import { digits } from "../../lib/quantity";
import { useNow } from "../../lib/signal";
import { duration } from "../../lib/time";
import { running } from "../../model/cells";
import { reversed } from "../../model/edit";
import { Mark } from "../../ui/icons";
import { Age, Command, Panel } from "../../ui/parts";

const meanings: Record<string, string> = {
  Fencing: "Cells are set to refuse writers with the topology from before.",
  Promoting: "The backups of the failed cell become the objects.",
  Moving: "Objects move from store to store. Clients notice nothing.",
  Moved: "Everything has moved. The change ends.",
};

export function Change({ topology, may }: { topology: CellTopology; may: boolean }) {
  const change = running(topology)!;
  const now = useNow();
  const pace = usePace(topology, change.done, now);
  const [problem, setProblem] = useState("");
  const [asked, setAsked] = useState(false);
  const phases = change.text.includes("taken over") || change.phase === "Promoting" ? ["Fencing", "Promoting", "Moved"] : ["Fencing", "Moving", "Moved"];
  const observed = topology.status?.observedGeneration === topology.metadata.generation;
  const phase = observed ? change.phase : "Fencing";
  const place = phases.indexOf(phase);
  const share = change.total > 0 ? Math.min(1, change.done / change.total) : phase === "Moved" ? 1 : 0;
  const back = async () => {
    setProblem("");
    try {
      await request(`${paths.topologies}/${topology.metadata.name}`, { method: "PUT", body: { ...topology, spec: { ...topology.spec, cells: reversed(topology.spec?.cells ?? []) } } });
      setAsked(false);
    } catch (cause) {
      setProblem(fromFailure(cause).message);
    }
  };
  return (
    <Panel title={<>Change under way: {change.text}</>} note={change.startedAt ? <>began <Age time={change.startedAt} /> ago</> : undefined}>
      <div class="body change">
        <ol class="steps">
          {phases.map((name, i) => (
            <li key={name} class={i < place ? "past" : i === place ? "now" : ""} aria-current={i === place ? "step" : undefined}>
              <Mark level={i < place ? "ok" : i === place ? "busy" : "unknown"} /> <strong>{name}</strong><span class="small soft">{meanings[name]}</span>
            </li>
          ))}
        </ol>
        <div class="progress" role="progressbar" aria-valuemin={0} aria-valuemax={change.total} aria-valuenow={change.done} aria-label="Objects moved"><i style={{ width: `${100 * share}%` }} /></div>
        <p class="small soft">
          {digits(change.done)} of {digits(change.total)} objects have moved
          {pace > 0 ? <> · {digits(pace)} per second{change.total > change.done ? <> · {duration((1000 * (change.total - change.done)) / pace)} to go</> : null}</> : null}
          {topology.spec?.migration?.window ? <> · at most {topology.spec.migration.window} at once</> : null}
        </p>
        {problem ? <p class="problem" role="alert">{problem}</p> : null}
        <div class="do">
          <Command>cellplane cells watch</Command>
          {may && phase !== "Promoting" && !change.text.includes("taken over") ? (
            <>
              {asked ? <><button type="button" class="danger" onClick={() => void back()}>Yes, move everything back</button><button type="button" onClick={() => setAsked(false)}>No</button></> : <button type="button" onClick={() => setAsked(true)}>Reverse</button>}
              <Command>cellplane cells abort</Command>
            </>
          ) : null}
        </div>
      </div>
    </Panel>
  );
}

/** usePace returns the objects that have moved per second since the page has seen the change. */
function usePace(topology: CellTopology, done: number, now: number): number {
  const seen = useRef<{ epoch?: number; done: number; at: number }>({ done: 0, at: 0 });
  const epoch = topology.metadata.generation;
  if (seen.current.epoch !== epoch) seen.current = { epoch, done, at: now };
  const passed = (now - seen.current.at) / 1000;
  return passed > 0.5 ? (done - seen.current.done) / passed : 0;
}
