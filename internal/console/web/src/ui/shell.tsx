// The frame around pages: navigation, the state of the connection, and the keyboard.

import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { connection } from "../lib/connection";
import { go, route } from "../lib/route";
import { session, signOut } from "../lib/session";
import { useNow, useValue } from "../lib/signal";
import { duration } from "../lib/time";
import { pages, pageOf } from "../pages";
import { icons, Mark } from "./icons";
import { Offer, SignIn } from "./signin";
import { switchTheme, theme } from "./theme";

export function App(): VNode {
  const now = useValue(session);
  switch (now.state) {
    case "starting":
      return <div class="boot" />;
    case "out":
      return <SignIn why={now.why} />;
    case "offered":
      return <Offer name={now.user.name} />;
    default:
      return <Frame key={now.user.name} />; // nothing on the screen is for another user
  }
}

function Frame() {
  const here = useValue(route);
  const now = useValue(session);
  const dialog = useRef<HTMLDialogElement>(null);
  const main = useRef<HTMLElement>(null);
  const page = pageOf(here);
  useKeys(() => dialog.current?.showModal());
  const place = here.parts.join("/");
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    scrollTo(0, 0);
    main.current?.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
  }, [place]);
  const expired = now.state === "expired";
  return (
    <>
      <div class="frame" inert={expired}>
        <a class="skip" href="#main" onClick={(event) => {
          event.preventDefault();
          main.current?.querySelector<HTMLElement>("h1")?.focus();
        }}>Skip to the content</a>
        <aside class="side">
          <a class="brand" href="#/"><img src={icon()} alt="" width={24} height={24} />Cellplane</a>
          <nav class="nav" aria-label="Pages">
            {pages.map((p) => (
              <a key={p.id} href={p.id ? "#/" + p.id : "#/"} aria-current={p === page ? "page" : undefined}>{p.icon()}<span>{p.title}</span>{p.key ? <kbd aria-hidden="true">g {p.key}</kbd> : null}</a>
            ))}
          </nav>
          <Foot help={() => dialog.current?.showModal()} />
        </aside>
        <div class="main">
          <Down />
          <main class="page" id="main" ref={main}>{page ? page.render(here) : <Nowhere />}</main>
        </div>
      </div>
      {now.state === "expired" ? <ExpiredDialog name={now.user.name} /> : null}
      <Help dialog={dialog} />
    </>
  );
}

/** icon returns the address of the icon, which has a hash in its name. */
function icon(): string {
  return document.querySelector<HTMLLinkElement>('link[rel="icon"]')?.href ?? "";
}

function Nowhere() {
  return <div class="state"><strong>There is no such page</strong><p><a href="#/">Go to the overview</a></p></div>;
}

function Foot({ help }: { help: () => void }) {
  const now = useValue(session);
  const chosen = useValue(theme);
  const user = now.state === "in" || now.state === "expired" ? now.user.name : "";
  const title = { auto: "Colours: as the machine prefers", light: "Colours: light", dark: "Colours: dark" }[chosen];
  return (
    <div class="foot">
      <div class="long"><Gateway /></div>
      <div class="user" title={user}>{icons.user()}<span class="clip">{user}</span></div>
      <div class="tools">
        <button type="button" class="plain icon" onClick={switchTheme} aria-label={title} title={title}>{{ auto: icons.auto, light: icons.sun, dark: icons.moon }[chosen]()}</button>
        <button type="button" class="plain icon" onClick={help} aria-label="Keys" title="Keys (?)">{icons.keyboard()}</button>
        <button type="button" class="plain icon" onClick={signOut} aria-label="Sign out" title="Sign out">{icons.leave()}</button>
      </div>
    </div>
  );
}

function Gateway() {
  const { state, latencies } = useValue(connection);
  const last = latencies.at(-1);
  if (state === "down") return <span class="status bad"><Mark level="bad" />Gateway does not answer</span>;
  if (state === "connecting") return <span class="status unknown"><Mark level="unknown" />Connecting</span>;
  return <span class="status ok" title="Round trip of the last request for its health"><Mark level="ok" />Live{last !== undefined ? <span class="faint">{last < 10 ? last.toFixed(1) : Math.round(last)} ms</span> : null}</span>;
}

/** Down says that what is shown is old. */
function Down() {
  const { state, since } = useValue(connection);
  const now = useNow();
  if (state !== "down" || since === undefined) return null;
  return <div class="banner" role="status"><Mark level="warn" /><span>The gateway has not answered for {duration(now - since)}. What you see is from before; it continues by itself.</span></div>;
}

function ExpiredDialog({ name }: { name: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  // Browsers close a dialog at the second Escape, whatever the page says to it.
  return <dialog ref={dialog} class="expired" onCancel={(event) => event.preventDefault()} onClose={() => dialog.current?.showModal()} aria-label="Sign in again"><SignIn again={name} /></dialog>;
}

function Help({ dialog }: { dialog: { current: HTMLDialogElement | null } }) {
  return (
    <dialog ref={dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {pages.filter((p) => p.key).map((p) => <><dt><kbd>g</kbd> <kbd>{p.key}</kbd></dt><dd>{p.title}</dd></>)}
        <dt><kbd>/</kbd></dt><dd>Filter</dd>
        <dt><kbd>t</kbd></dt><dd>Light, dark, or as the machine prefers</dd>
        <dt><kbd>?</kbd></dt><dd>This list</dd>
      </dl>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  );
}

function useKeys(help: () => void): void {
  useEffect(() => {
    let before = "";
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || (event.target as HTMLElement).closest("input, textarea, select, dialog, [data-keys]")) return;
      const chosen = before === "g" ? pages.find((p) => p.key === event.key) : undefined;
      before = event.key;
      if (chosen) go(chosen.id ? [chosen.id] : []);
      else if (event.key === "?") help();
      else if (event.key === "t") switchTheme();
      else if (event.key === "/") document.querySelector<HTMLElement>("[data-filter]")?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
