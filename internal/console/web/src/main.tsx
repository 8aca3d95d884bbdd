// The console begins here: it finds out who the user is, and shows the frame.

import { render } from "preact";

import { keepConnected } from "./lib/connection";
import { fromFailure } from "./lib/errors";
import { fromIssuer } from "./lib/oidc";
import { session } from "./lib/session";
import { fromFragment, withCertificate, withLink } from "./lib/signin";
import { App } from "./ui/shell";

async function start(given: string | null): Promise<void> {
  try {
    if (given !== null) return await withLink(given);
    if (await fromIssuer()) return;
    if (await withCertificate()) return;
    session.set({ state: "out" });
  } catch (cause) {
    session.set({ state: "out", why: fromFailure(cause).message });
  }
}

const given = fromFragment();
const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);
void start(given);
keepConnected();
