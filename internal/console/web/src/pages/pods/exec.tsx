// A shell in a container.

import { useEffect, useRef, useState } from "preact/hooks";

import { useMay } from "../../lib/access";
import { Exec as Session, type Ended } from "../../lib/exec";
import { replaceQuery, route } from "../../lib/route";
import { useValue } from "../../lib/signal";
import { Screen, sequenceOf } from "../../lib/terminal";
import { inNamespace, quoted } from "../../model/command";
import type { Pod } from "../../model/pod";
import { Command, Empty, Panel, Waiting } from "../../ui/parts";
import { containersOf } from "./logs";

export function Exec({ pod }: { pod: Pod }) {
  const { namespace = "", name = "" } = pod.metadata;
  const query = useValue(route).query;
  const containers = containersOf(pod);
  const container = query.get("container") || containers[0] || "";
  const [command, setCommand] = useState("sh");
  const [run, setRun] = useState<{ command: string; container: string; id: number } | null>(null);
  const get = useMay({ verb: "get", resource: "pods", subresource: "exec", namespace, name });
  const create = useMay({ verb: "create", resource: "pods", subresource: "exec", namespace, name });
  if (get === undefined || create === undefined) return <Panel><Waiting /></Panel>;
  if (!get || !create) {
    return <Panel><Empty title="You may not run commands in this pod">Ask an administrator for a role in {namespace} that allows to get and create <code>pods/exec</code>.</Empty></Panel>;
  }
  return (
    <>
      <Panel>
        <form class="body filters" onSubmit={(event) => {
          event.preventDefault();
          if (command.trim()) setRun({ command: command.trim(), container, id: (run?.id ?? 0) + 1 });
        }}>
          <div><label for="exec-container">Container</label><select id="exec-container" value={container} onChange={(event) => replaceQuery({ container: event.currentTarget.value })}>{containers.map((c) => <option key={c} value={c}>{c}</option>)}</select></div>
          <div><label for="exec-command">Command</label><input id="exec-command" class="mono" list="exec-shells" autocomplete="off" spellcheck={false} value={command} onInput={(event) => setCommand(event.currentTarget.value)} /><datalist id="exec-shells"><option value="sh" /><option value="bash" /></datalist></div>
          <button type="submit" class="primary">{run ? "Run again" : "Run"}</button>
        </form>
        {run ? <Terminal key={run.id} pod={pod} container={run.container} words={wordsOf(run.command)} /> : <Empty title="A command in the container">It runs with the rights of the container, and the gateway's audit log records who has run it.</Empty>}
      </Panel>
      <Command>{`kubectl exec -it ${name}${inNamespace(namespace)}${containers.length > 1 ? ` -c ${container}` : ""} -- ${command || "sh"}`}</Command>
    </>
  );
}

/** wordsOf splits a command as a shell does, by spaces and quotes. */
export function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const match of text.matchAll(/(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])+/g)) {
    words.push(match[0].replace(/"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)/g, (_, double: string | undefined, single: string | undefined, escaped: string | undefined) => (double !== undefined ? double.replace(/\\(.)/g, "$1") : (single ?? escaped ?? ""))));
  }
  return words;
}

const cell = { height: 18 };

function Terminal({ pod, container, words }: { pod: Pod; container: string; words: string[] }) {
  const { namespace = "", name = "" } = pod.metadata;
  const box = useRef<HTMLDivElement>(null);
  const keys = useRef<HTMLTextAreaElement>(null);
  const ruler = useRef<HTMLSpanElement>(null);
  const live = useRef<{ session: Session; screen: Screen } | undefined>(undefined);
  const [state, setState] = useState<"opening" | "open" | Ended>("opening");
  const [focused, setFocused] = useState(false);
  const [, render] = useState(0);
  useEffect(() => {
    const size = () => {
      const element = box.current!;
      const width = (ruler.current?.getBoundingClientRect().width ?? 80) / 10;
      return { rows: Math.max(4, Math.floor((element.clientHeight - 16) / cell.height)), columns: Math.max(20, Math.floor((element.clientWidth - 24) / Math.max(1, width))) };
    };
    const { rows, columns } = size();
    let drawing: number | undefined;
    const screen = new Screen(rows, columns, (text) => session.send(text));
    const session: Session = new Session({
      namespace, name, container, command: words,
      output: (text) => {
        screen.write(text);
        drawing ??= requestAnimationFrame(() => {
          drawing = undefined;
          render((n) => n + 1);
        });
      },
      opened: () => {
        setState("open");
        session.resize(screen.rows, screen.columns);
      },
      ended: (how) => setState(how),
    });
    live.current = { session, screen };
    keys.current?.focus({ preventScroll: true });
    const observer = new ResizeObserver(() => {
      if (!box.current) return; // it is being left
      const next = size();
      if (next.rows === screen.rows && next.columns === screen.columns) return;
      screen.resize(next.rows, next.columns);
      session.resize(next.rows, next.columns);
      render((n) => n + 1);
    });
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      if (drawing !== undefined) cancelAnimationFrame(drawing);
      session.close();
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (element) element.scrollTop = element.scrollHeight;
  });
  const screen = live.current?.screen;
  const open = state === "open";
  return (
    <div class="terminal" data-keys onClick={() => {
      if (getSelection()?.isCollapsed) keys.current?.focus({ preventScroll: true });
    }}>
      <div class="view" ref={box} aria-label={`Terminal: ${words.map(quoted).join(" ")}`} role="group">
        <span class="ruler" ref={ruler} aria-hidden="true">0000000000</span>
        <pre>{screen ? <>{screen.history.length > 0 ? screen.history.join("\n") + "\n" : ""}{screen.text().map((line, i) => <Line key={i} text={line} cursor={open && i === screen.row ? screen.column : -1} focused={focused} />)}</> : null}</pre>
        <textarea ref={keys} class="keys" aria-label="Keys for the terminal. Shift and Tab leave it." rows={1} autocomplete="off" autocapitalize="off" spellcheck={false} disabled={!open && state !== "opening"}
          onFocus={() => setFocused(true)} onBlur={() => setFocused(false)}
          onKeyDown={(event) => {
            const { session, screen } = live.current!;
            const sequence = sequenceOf(event, screen);
            if (sequence === undefined) return;
            event.preventDefault();
            session.send(sequence);
          }}
          onPaste={(event) => {
            event.preventDefault();
            const { session, screen } = live.current!;
            const text = (event.clipboardData?.getData("text") ?? "").replace(/\r?\n/g, "\r").replaceAll("\u001b", "");
            session.send(screen.bracketedPaste ? `\u001b[200~${text}\u001b[201~` : text);
          }}
          onInput={(event) => {
            if (event.isComposing) return;
            live.current!.session.send(event.currentTarget.value);
            event.currentTarget.value = "";
          }}
          onCompositionEnd={(event) => {
            live.current!.session.send(event.currentTarget.value);
            event.currentTarget.value = "";
          }} />
      </div>
      <div class="hint small" role="status">{state === "opening" ? "Connecting" : state === "open" ? <><kbd>Shift</kbd> <kbd>Tab</kbd> leaves the terminal</> : state.message}</div>
    </div>
  );
}

function Line({ text, cursor, focused }: { text: string; cursor: number; focused: boolean }) {
  if (cursor < 0) return <>{text + "\n"}</>;
  const all = Array.from(text.padEnd(cursor + 1));
  return <>{all.slice(0, cursor).join("")}<span class={"cursor" + (focused ? " on" : "")}>{all[cursor]}</span>{all.slice(cursor + 1).join("") + "\n"}</>;
}
