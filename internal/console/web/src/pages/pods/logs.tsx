// The logs of a container, as they are written.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { useMay } from "../../lib/access";
import { fromFailure, type ApiError } from "../../lib/errors";
import { send } from "../../lib/http";
import { digits } from "../../lib/quantity";
import { replaceQuery, route } from "../../lib/route";
import { session } from "../../lib/session";
import { useValue } from "../../lib/signal";
import { inNamespace } from "../../model/command";
import { LogBuffer, mostLines } from "../../model/logbuffer";
import type { Pod } from "../../model/pod";
import { Command, Empty, Failure, Panel, Waiting } from "../../ui/parts";
import { Window } from "../../ui/window";

const tail = 1000;

type Reading = { state: "reading" | "ended"; error?: undefined } | { state: "failed"; error: ApiError };

export function containersOf(pod: Pod): string[] {
  return [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? []), ...(pod.spec?.ephemeralContainers ?? [])].map((c) => c.name);
}

export function Logs({ pod }: { pod: Pod }) {
  const { namespace = "", name = "", uid } = pod.metadata;
  const query = useValue(route).query;
  const containers = containersOf(pod);
  const container = query.get("container") || containers[0] || "";
  const previous = query.get("previous") === "true";
  const times = query.get("times") === "true";
  const may = useMay({ verb: "get", resource: "pods", subresource: "log", namespace, name });
  const [find, setFind] = useState("");
  const [again, setAgain] = useState(0);
  const [sticks, setSticks] = useState(true);
  const [, render] = useState(0);
  const buffer = useRef(new LogBuffer());
  const [reading, setReading] = useState<Reading>({ state: "reading" });
  useEffect(() => {
    const control = new AbortController();
    const own = (buffer.current = new LogBuffer());
    setReading({ state: "reading" });
    setSticks(true);
    let drawing: number | undefined;
    const draw = () => {
      drawing ??= requestAnimationFrame(() => {
        drawing = undefined;
        render((n) => n + 1);
      });
    };
    const read = async () => {
      try {
        const answer = await send(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/log`, {
          accept: "*/*", timeout: 0, signal: control.signal, query: { container, follow: !previous, previous, timestamps: times, tailLines: tail },
        });
        const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          own.add(value);
          draw();
        }
        own.finish();
        setReading({ state: "ended" });
      } catch (cause) {
        if (!control.signal.aborted) setReading({ state: "failed", error: fromFailure(cause) });
      }
    };
    void read();
    // A stream that is open has the rights of the token before.
    const unsubscribe = session.subscribe(() => session.get().state === "in" && setAgain((n) => n + 1));
    return () => {
      unsubscribe();
      control.abort();
      if (drawing !== undefined) cancelAnimationFrame(drawing);
    };
  }, [namespace, name, uid, container, previous, times, again]);
  const { lines, total } = buffer.current;
  const words = find.toLowerCase();
  const shown = useMemo(() => (words ? lines.filter((line) => line.toLowerCase().includes(words)) : lines), [words, lines, total]);
  const command = [`kubectl logs ${name}${inNamespace(namespace)}`, containers.length > 1 ? `-c ${container}` : "", previous ? "--previous" : "-f", times ? "--timestamps" : "", `--tail ${tail}`].filter(Boolean).join(" ");
  return (
    <>
      <Panel>
        <div class="body filters">
          <div><label for="logs-container">Container</label><select id="logs-container" value={container} onChange={(event) => replaceQuery({ container: event.currentTarget.value })}>{containers.map((c) => <option key={c} value={c}>{c}</option>)}</select></div>
          <div><label for="logs-find">Lines with</label><input id="logs-find" data-filter type="search" placeholder="all" value={find} onInput={(event) => setFind(event.currentTarget.value)} /></div>
          <label class="check"><input type="checkbox" checked={previous} onChange={(event) => replaceQuery({ previous: event.currentTarget.checked ? "true" : undefined })} /> Before the last restart</label>
          <label class="check"><input type="checkbox" checked={times} onChange={(event) => replaceQuery({ times: event.currentTarget.checked ? "true" : undefined })} /> Times</label>
          <span class="calm small faint end">
            <span role="status">{reading.state === "reading" ? "follows" : reading.state === "ended" ? "ended" : "broken off"}</span>
            <span>{digits(total)} lines{total > mostLines ? `, the last ${digits(mostLines)} are kept` : ""}</span>
            {reading.state !== "reading" ? <button type="button" class="plain" onClick={() => setAgain((n) => n + 1)}>Read again</button> : null}
            {sticks ? null : <button type="button" class="plain" onClick={() => setSticks(true)}>To the end</button>}
          </span>
        </div>
        {may === false && total === 0 ? <Empty title="You may not read logs here">Ask an administrator for a role in {namespace} that allows to get <code>pods/log</code>.</Empty>
          : reading.error && total === 0 ? (reading.error.status === 400 ? <Empty title="There are no logs">{reading.error.message}</Empty> : reading.error.status === 403 ? <Empty title="You may not read logs here"><p>{reading.error.message}</p><p>The federation asks the member, too: you need the right there as well.</p></Empty> : <Failure error={reading.error} what="logs" />)
          : total === 0 ? (reading.state === "reading" ? <><Waiting /><p class="hidden">Nothing has been written yet</p></> : <Empty title="It has written nothing" />)
          : shown.length === 0 ? <Empty title="No line has this text" />
          : <Window class="log" role="log" label={`Log of ${container}`} length={shown.length} height={[20, 20]} stick={sticks} onStick={setSticks}
              rows={(from, to) => shown.slice(from, to).map((line, i) => <div class="text" key={from + i}>{line || " "}</div>)} />}
        {reading.error && total > 0 ? <div class="body line-top"><p class="problem" role="alert">The stream broke off. {reading.error.message}</p></div> : null}
      </Panel>
      <Command>{command}</Command>
    </>
  );
}
