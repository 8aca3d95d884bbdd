// The object as YAML, to read and to edit. The server checks what was written before it is stored.

import { useState } from "preact/hooks";

import { useMay } from "../../lib/access";
import { pathOf } from "../../lib/discovery";
import { fromFailure } from "../../lib/errors";
import { request } from "../../lib/http";
import { inNamespace } from "../../model/command";
import { inexact, yaml } from "../../model/yaml";
import { Command, Panel, Status } from "../../ui/parts";
import type { About } from "./workload";

type Said = { level: "ok" | "bad"; text: string };

/** shownOf leaves out what nobody reads. */
function shownOf(template: About["template"], status: boolean): string {
  const { apiVersion, kind, metadata, ...rest } = template;
  const { managedFields, ...kept } = metadata as typeof metadata & { managedFields?: unknown };
  void managedFields;
  const shown: Record<string, unknown> = { apiVersion, kind, metadata: kept, ...rest };
  if (!status) delete shown["status"];
  return yaml(shown);
}

export function YamlPanel({ about: { kind, namespace, name, reference, template } }: { about: About }) {
  const may = useMay({ verb: "update", group: kind.group, resource: kind.resource, namespace, name });
  const [draft, setDraft] = useState<string | null>(null);
  const [said, setSaid] = useState<Said | null>(null);
  const [busy, setBusy] = useState(false);
  const rounded = inexact({ ...template, status: undefined });
  const edit = () => {
    setSaid(rounded === undefined ? null : { level: "bad", text: `This page cannot edit it: a browser rounds the large number in ${rounded}. The command below does not.` });
    if (rounded === undefined) setDraft(shownOf(template, false));
  };
  const put = async (dry: boolean) => {
    setBusy(true);
    setSaid(null);
    try {
      await request(`${pathOf(kind, namespace)}/${encodeURIComponent(name)}`, {
        method: "PUT", contentType: "application/yaml", body: draft ?? "", query: { fieldValidation: "Strict", fieldManager: "cellplane-console", dryRun: dry ? "All" : undefined },
      });
      setSaid({ level: "ok", text: dry ? "The server would accept it. Nothing has been changed." : "It is stored." });
      if (!dry) setDraft(null);
    } catch (cause) {
      const error = fromFailure(cause);
      setSaid({ level: "bad", text: error.status === 409 ? "Somebody has changed it meanwhile. Discard this, and edit it again." : error.message });
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Panel title="YAML" actions={draft === null
        ? may ? <button type="button" onClick={edit}>Edit</button> : null
        : <><button type="button" disabled={busy} onClick={() => void put(true)}>Check</button><button type="button" class="primary" disabled={busy} onClick={() => void put(false)}>Save</button><button type="button" onClick={() => { setDraft(null); setSaid(null); }}>Discard</button></>}>
        {said ? <div class="body" role={said.level === "bad" ? "alert" : "status"}>{said.level === "bad" ? <p class="problem">{said.text}</p> : <Status level="ok">{said.text}</Status>}</div> : null}
        {draft === null ? <pre class="yaml" tabIndex={0}>{shownOf(template, true)}</pre>
          : <textarea class="yaml" aria-label="YAML" spellcheck={false} autocomplete="off" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />}
      </Panel>
      <div class="commands"><Command>{`kubectl get ${reference}${inNamespace(namespace)} -o yaml`}</Command>{may ? <Command>{`kubectl edit ${reference}${inNamespace(namespace)}`}</Command> : null}</div>
    </>
  );
}
