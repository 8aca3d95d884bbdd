// A plan before a change: what would move, and the command for the same.

import { useEffect, useState } from "preact/hooks";

import { fromFailure } from "../../lib/errors";
import { request } from "../../lib/http";
import { paths, type CellTopology } from "../../lib/kube";
import { digits } from "../../lib/quantity";
import { slotCount } from "../../model/cells";
import { command, preview, type Action, type Edit, type Plan } from "../../model/edit";
import { Command, Panel, Table } from "../../ui/parts";

const actions: { id: Action; title: string; what: string }[] = [
  { id: "add", title: "Add a cell", what: "It takes its share from all others." },
  { id: "drain", title: "Drain a cell", what: "Its share moves to the others, each slot to its backup cell." },
  { id: "weight", title: "Change a weight", what: "The cell gets a larger or a smaller share." },
  { id: "failover", title: "Fail over a cell", what: "For a cell that is lost: its backup cells take over at once. What had not reached the backup is kept and reported when the cell returns." },
  { id: "rejoin", title: "Have a failed cell rejoin", what: "It returns empty and gets its share again." },
];

interface Props {
  topology: CellTopology;
  /** Cells that are not in the topology. */
  spares: string[];
  plan: Plan | null;
  onPlan: (plan: Plan | null) => void;
  may: boolean;
  colors: Record<string, string>;
}

export function Planner({ topology, spares, plan, onPlan, may, colors }: Props) {
  const [edit, setEdit] = useState<Edit | null>(null);
  const [problem, setProblem] = useState("");
  const [sure, setSure] = useState("");
  const [busy, setBusy] = useState(false);
  const cells = topology.spec?.cells ?? [];
  const spec = JSON.stringify(cells);

  useEffect(() => {
    onPlan(null);
    setProblem("");
    if (!edit?.cell) return;
    let current = true;
    preview(cells, edit).then(
      (made) => current && onPlan(made),
      (cause: unknown) => current && setProblem(cause instanceof Error ? cause.message : "This cannot be planned."),
    );
    return () => {
      current = false;
    };
  }, [edit?.action, edit?.cell, edit?.weight, spec]);

  const choose = (action: Action) => {
    setSure("");
    setEdit(action === edit?.action ? null : { action, cell: action === "add" ? (spares[0] ?? "") : "", weight: action === "weight" ? 2 : 1 });
  };
  const change = async () => {
    if (!plan || !edit) return;
    // The version that is sent is that of these cells, so no change of others is lost.
    if (JSON.stringify(plan.of) !== spec) return setProblem("The cells have changed meanwhile. Look at the plan again.");
    setBusy(true);
    setProblem("");
    try {
      await request(`${paths.topologies}/${topology.metadata.name}`, { method: "PUT", body: { ...topology, spec: { ...topology.spec, cells: plan.cells } } });
      setEdit(null);
    } catch (cause) {
      setProblem(fromFailure(cause).message);
    } finally {
      setBusy(false);
    }
  };
  const names = cells.filter((c) => (edit?.action === "rejoin" ? c.state === "Failed" : c.state !== "Failed")).map((c) => c.name);
  const dangerous = edit?.action === "failover";
  return (
    <Panel title="Plan a change" note="nothing changes until you say so">
      <div class="body planner">
        <div class="choices" role="group" aria-label="Kind of change">
          {actions.map((a) => <button type="button" key={a.id} aria-pressed={edit?.action === a.id} onClick={() => choose(a.id)}>{a.title}</button>)}
        </div>
        {edit ? (
          <>
            <p class="soft small">{actions.find((a) => a.id === edit.action)?.what}</p>
            <div class="fields">
              <div>
                <label for="plan-cell">Cell</label>
                {edit.action === "add"
                  ? <input id="plan-cell" list="spares" value={edit.cell} placeholder="cell-c" onInput={(event) => setEdit({ ...edit, cell: event.currentTarget.value.trim() })} />
                  : <select id="plan-cell" value={edit.cell} onChange={(event) => setEdit({ ...edit, cell: event.currentTarget.value })}><option value="">Choose…</option>{names.map((name) => <option key={name} value={name}>{name}</option>)}</select>}
                <datalist id="spares">{spares.map((name) => <option key={name} value={name} />)}</datalist>
              </div>
              {edit.action === "add" || edit.action === "weight" ? <div><label for="plan-weight">Weight</label><input id="plan-weight" type="number" min={1} max={1000} value={edit.weight} onInput={(event) => setEdit({ ...edit, weight: Number(event.currentTarget.value) })} /></div> : null}
            </div>
          </>
        ) : <p class="soft small">Choose a change to see what it would move. Moving slots stand out in the map.</p>}
        {problem ? <p class="problem" role="alert">{problem}</p> : null}
      </div>
      {plan && edit ? (
        <>
          <Table label="Shares" rows={plan.shares} id={(s) => s.cell} columns={[
            { title: "Cell", show: (s) => <><i class="swatch" style={{ background: colors[s.cell] ?? "var(--accent)" }} /> {s.cell}</> },
            { title: "Share now", number: true, show: (s) => percent(s.before) },
            { title: "Afterwards", number: true, show: (s) => percent(s.after) },
            { title: "Gets", number: true, show: (s) => digits(plan.flows.filter((f) => f.to === s.cell).reduce((n, f) => n + f.slots, 0)) },
            { title: "Gives", number: true, show: (s) => digits(plan.flows.filter((f) => f.from === s.cell).reduce((n, f) => n + f.slots, 0)) },
          ]} />
          <div class="body line-top planner">
            <p><strong>{percent(plan.moved)} of all objects</strong> would move{plan.flows.length > 0 ? <span class="soft">: {plan.flows.map((f) => `${f.from} → ${f.to} ${digits(f.slots)} slots`).join(", ")}</span> : null}.</p>
            {may && !(edit.action === "add" && !spares.includes(edit.cell)) ? (
              <div class="do">
                {dangerous ? <input aria-label={`Type ${edit.cell} to confirm`} placeholder={`Type ${edit.cell} to confirm`} value={sure} onInput={(event) => setSure(event.currentTarget.value)} /> : null}
                <button type="button" class={dangerous ? "danger" : "primary"} disabled={busy || (dangerous && sure !== edit.cell)} onClick={() => void change()}>{actions.find((a) => a.id === edit.action)?.title}</button>
              </div>
            ) : edit.action === "add" && may ? <p class="soft small">There is no Cell {edit.cell} yet. This command makes it, and has it join:</p> : null}
            <Command>{command(edit)}</Command>
          </div>
        </>
      ) : edit ? <div class="body line-top"><Command>{command(edit, true)}</Command></div> : null}
    </Panel>
  );
}

function percent(slots: number): string {
  return ((100 * slots) / slotCount).toFixed(1) + "%";
}
