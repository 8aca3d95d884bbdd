// A command in a container, over a WebSocket.

import { fromFailure } from "./errors";
import { base, send } from "./http";
import { token } from "./session";

export interface Ended {
  /** Whether the command ran and ended by itself. */
  ran: boolean;
  message: string;
}

export interface ExecOptions {
  namespace: string;
  name: string;
  container: string;
  command: string[];
  output: (text: string) => void;
  opened: () => void;
  ended: (how: Ended) => void;
}

const enum Channel {
  Stdin = 0,
  Stdout = 1,
  Stderr = 2,
  Error = 3,
  Resize = 4,
}

interface Result {
  status?: string;
  message?: string;
  details?: { causes?: { reason?: string; message?: string }[] };
}

/** Exec runs a command with a terminal. The token is in a subprotocol: scripts cannot set headers of a WebSocket. */
export class Exec {
  private readonly socket: WebSocket;
  private readonly decoders = { [Channel.Stdout]: new TextDecoder(), [Channel.Stderr]: new TextDecoder() };
  private over = false;
  private wasOpen = false;

  constructor(private readonly options: ExecOptions) {
    const { namespace, name, container, command } = options;
    const query = new URLSearchParams({ container, stdin: "true", stdout: "true", tty: "true" });
    for (const word of command) query.append("command", word);
    const protocols = ["v5.channel.k8s.io"];
    const secret = token();
    if (secret) protocols.push("base64url.bearer.authorization.k8s.io." + btoa(secret).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, ""));
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/exec`;
    this.socket = new WebSocket(`wss://${location.host}${base}${path}?${query.toString()}`, protocols);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.wasOpen = true;
      options.opened();
    };
    this.socket.onmessage = (event) => this.receive(new Uint8Array(event.data as ArrayBuffer));
    this.socket.onclose = () => {
      if (this.wasOpen) this.end({ ran: false, message: "The connection was closed." });
      else if (!this.over) void this.why(path, container);
    };
  }

  private receive(frame: Uint8Array): void {
    const data = frame.subarray(1);
    switch (frame[0]) {
      case Channel.Stdout:
      case Channel.Stderr:
        this.options.output(this.decoders[frame[0] as Channel.Stdout].decode(data, { stream: true }));
        break;
      case Channel.Error:
        this.end(resultOf(new TextDecoder().decode(data)));
        break;
    }
  }

  /** why finds out the reason of a refusal, which browsers do not tell: a request without an upgrade is refused for the same one. It runs nothing. */
  private async why(path: string, container: string): Promise<void> {
    let message = "";
    try {
      await send(path, { query: { container, stdout: true, command: "true" } });
    } catch (cause) {
      const error = fromFailure(cause);
      if (error.status === 401 || error.status === 403 || error.status === 404) message = error.message;
    }
    this.end({ ran: false, message: message || "The connection was refused. A browser does not say why; the command below does." });
  }

  private end(how: Ended): void {
    if (this.over) return;
    this.over = true;
    this.options.ended(how);
    this.close();
  }

  private frame(channel: Channel, text: string): void {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    const data = new TextEncoder().encode(text);
    const frame = new Uint8Array(data.length + 1);
    frame[0] = channel;
    frame.set(data, 1);
    this.socket.send(frame);
  }

  send(text: string): void {
    // A frame has its bounds; a long paste is sent in pieces.
    const piece = 16_000;
    for (let i = 0; i < text.length; i += piece) this.frame(Channel.Stdin, text.slice(i, i + piece));
  }

  resize(rows: number, columns: number): void {
    this.frame(Channel.Resize, JSON.stringify({ Width: columns, Height: rows }));
  }

  /** close ends the connection without a word. */
  close(): void {
    this.over = true;
    this.socket.close();
  }
}

function resultOf(text: string): Ended {
  try {
    const result = JSON.parse(text) as Result;
    if (result.status === "Success") return { ran: true, message: "The command has ended." };
    const code = result.details?.causes?.find((c) => c.reason === "ExitCode")?.message;
    if (code) return { ran: true, message: `The command has ended with code ${code}.` };
    return { ran: false, message: result.message ?? "The command failed." };
  } catch {
    return { ran: false, message: text || "The command failed." };
  }
}
