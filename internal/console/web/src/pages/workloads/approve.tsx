// Approvals of a rolling update, and its pause: each with the command for the same.

import { useRef, useState } from "preact/hooks";

import { useMay } from "../../lib/access";
import { fromFailure } from "../../lib/errors";
import { request } from "../../lib/http";
import { pathOf } from "../../lib/discovery";
import { paths } from "../../lib/kube";
import { inNamespace } from "../../model/command";
import { approvalKey, approvalWith, paused, type Stages } from "../../model/rollout";
import { Command, Status } from "../../ui/parts";
import type { About } from "./workload";

const merge = "application/merge-patch+json";

/** useAction does something once at a time, and says what went wrong. */
export function useAction(action: () => Promise<void>): { run: () => void; busy: boolean; problem: string } {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const run = () => {
    if (busy) return;
    setBusy(true);
    setProblem("");
    action().catch((cause: unknown) => {
      const error = fromFailure(cause);
      setProblem(error.status === 409 ? "It has changed meanwhile. Look at it again, and repeat this if it is still right." : error.message);
    }).finally(() => setBusy(false));
  };
  return { run, busy, problem };
}

export function Approval({ about: { namespace, reference, binding }, stages }: { about: About; stages: Stages }) {
  const name = binding?.metadata.name ?? "";
  const may = useMay({ verb: "patch", group: "work.karmada.io", resource: "resourcebindings", namespace, name });
  const dialog = useRef<HTMLDialogElement>(null);
  const failed = stages.failed.length > 0;
  const stage = failed ? "" : stages.waiting;
  const command = `cellplane rollout approve ${reference}${inNamespace(namespace)}${failed ? " --despite-failure" : ""}`;
  const approve = useAction(async () => {
    // The version makes sure that what is approved is what was on the screen.
    await request(`/federation${paths.bindings.replace("resourcebindings", `namespaces/${encodeURIComponent(namespace)}/resourcebindings`)}/${encodeURIComponent(name)}`, {
      method: "PATCH", contentType: merge, query: { fieldManager: "cellplane-console" },
      body: JSON.stringify({ metadata: { resourceVersion: binding?.metadata.resourceVersion, annotations: { [approvalKey]: approvalWith(binding!, stages.update, stage) } } }),
    });
    dialog.current?.close();
  });
  return (
    <div class="body asks">
      <Status level={failed ? "bad" : "warn"}>{failed ? `The update has failed in ${stages.failed.join(", ")}, and is paused` : `Stage ${stages.waiting} waits for approval`}</Status>
      {may ? <button type="button" class="primary" onClick={() => dialog.current?.showModal()}>{failed ? "Let it go on" : `Approve ${stages.waiting}`}</button> : may === false ? <span class="small soft">Who may patch ResourceBindings in {namespace} may approve; you may not.</span> : null}
      <Command>{command}</Command>
      <dialog ref={dialog} aria-labelledby="approve-title">
        <h2 id="approve-title">{failed ? "Let the update go on?" : `Approve stage ${stages.waiting}?`}</h2>
        <div class="commands">
          <p>{failed ? `It has failed in ${stages.failed.join(", ")}. Its other clusters are updated all the same, within the bounds.` : "The clusters of this stage begin with the update, within the bounds. The approval is for this update alone."}</p>
          <Command>{command}</Command>
          {approve.problem ? <p class="problem" role="alert">{approve.problem}</p> : null}
          <form method="dialog" class="calm"><button type="button" class="primary" disabled={approve.busy} onClick={approve.run}>{failed ? "Go on" : "Approve"}</button><button type="submit">Cancel</button></form>
        </div>
      </dialog>
    </div>
  );
}

/** Pausing stops a Deployment's update in all clusters, and lets it go on. */
export function Pausing({ about: { kind, namespace, name, reference, template } }: { about: About }) {
  const ours = kind.group === "apps" && kind.resource === "deployments";
  const may = useMay({ verb: "patch", group: kind.group, resource: kind.resource, namespace, name });
  const stopped = paused(template);
  const change = useAction(async () => {
    await request(`${pathOf(kind, namespace)}/${encodeURIComponent(name)}`, { method: "PATCH", contentType: merge, body: JSON.stringify({ spec: { paused: stopped ? null : true } }), query: { fieldManager: "cellplane-console" } });
  });
  if (!ours || !may) return null;
  return (
    <>
      <button type="button" disabled={change.busy} onClick={change.run}>{stopped ? "Resume" : "Pause"}</button>
      <Command>{`cellplane rollout ${stopped ? "resume" : "pause"} ${reference}${inNamespace(namespace)}`}</Command>
      {change.problem ? <span class="problem small" role="alert">{change.problem}</span> : null}
    </>
  );
}
