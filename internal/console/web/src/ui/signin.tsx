// The page for who is not signed in.

import { useEffect, useState } from "preact/hooks";

import { fromFailure } from "../lib/errors";
import { issuers, toIssuer, type Issuer } from "../lib/oidc";
import { accept, decline, withCertificate, withToken } from "../lib/signin";
import { Command } from "./parts";

export function SignIn({ why, again }: { why?: string; again?: string }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState(why ?? "");
  const [busy, setBusy] = useState(false);
  const [known, setKnown] = useState<Issuer[]>([]);
  useEffect(() => void issuers().then(setKnown), []);
  const attempt = (what: () => Promise<unknown>) => {
    setBusy(true);
    setProblem("");
    what().catch((cause: unknown) => setProblem(fromFailure(cause).message)).finally(() => setBusy(false));
  };
  const certificate = async () => {
    if (!(await withCertificate())) throw new Error("none");
  };
  const Root = again ? "div" : "main"; // in a dialog, the page has its main part already
  return (
    <Root class="signin">
      <section class="panel" aria-labelledby="signin-title">
        <div>
          <h1 id="signin-title">{again ? "Sign in again" : "Sign in to Cellplane"}</h1>
          <p class="soft">{again ? `The gateway no longer accepts the token of ${again}. What you were looking at stays.` : "With an identity of the federation. The console may do what you may do, and nothing else."}</p>
        </div>
        {problem ? <p class="problem" role="alert">{problem}</p> : null}
        {known.length > 0 ? (
          <>
            <div class="ways">
              {known.map((issuer) => <button type="button" class="primary" disabled={busy} onClick={() => attempt(() => toIssuer(issuer))}>Continue with {hostOf(issuer.issuer)}</button>)}
            </div>
            <div class="or">or</div>
          </>
        ) : null}
        <form onSubmit={(event) => {
          event.preventDefault();
          attempt(async () => {
            await withToken(text);
            setText("");
          });
        }}>
          <label for="token">Token</label>
          <textarea id="token" value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} autocomplete="off" autofocus aria-describedby="token-help"
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey) {
                event.preventDefault();
                event.currentTarget.form?.requestSubmit();
              }
            }} />
          <p id="token-help" class="small faint">It stays in the memory of this page: a reload forgets it.</p>
          <button type="submit" class={known.length > 0 ? "" : "primary"} disabled={busy || text.trim() === ""}>Sign in</button>
        </form>
        <div class="or">or</div>
        <div class="ways">
          <button type="button" disabled={busy} onClick={() => attempt(() => certificate().catch((cause: unknown) => {
            if (cause instanceof Error && cause.message === "none") throw Object.assign(fromFailure(null), { message: "The browser has shown no client certificate that the gateway accepts. Import one, and reload this page." });
            throw cause;
          }))}>Use a client certificate</button>
        </div>
        <div class="small soft">On the machine of a local federation, this signs you in:<Command>cellplane console</Command></div>
      </section>
    </Root>
  );
}

/** Offer asks whether to use the token of a link. */
export function Offer({ name }: { name: string }) {
  return (
    <main class="signin">
      <section class="panel" aria-labelledby="signin-title">
        <div>
          <h1 id="signin-title">Sign in as {name}?</h1>
          <p class="soft">The link that you have opened has a token of this user. Go on only if you know where the link is from: who made it has the token, too, and may see what you do with it.</p>
        </div>
        <div class="ways">
          <button type="button" class="primary" onClick={accept}>Sign in</button>
          <button type="button" onClick={decline}>Do not use it</button>
        </div>
      </section>
    </main>
  );
}

function hostOf(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return address;
  }
}
