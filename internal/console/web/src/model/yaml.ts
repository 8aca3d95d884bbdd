// Objects as YAML for people. Only writing: text that people write is read by the server.

const plainText = /^[A-Za-z_/.][\w ./@+-]*$/;
const special = /^(?:true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan|[-+.]?\d.*)$/i;

/** yaml writes a value as a document. */
export function yaml(value: unknown): string {
  return block(value, 0).join("\n") + "\n";
}

function block(value: unknown, depth: number): string[] {
  const pad = "  ".repeat(depth);
  if (Array.isArray(value)) {
    if (value.length === 0) return [pad + "[]"];
    return value.flatMap((item) => {
      const lines = nested(item) ? block(item, depth + 1) : [pad + "  " + scalar(item, depth + 1)];
      return [pad + "- " + lines[0]!.slice(pad.length + 2), ...lines.slice(1)];
    });
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, v]) => v !== undefined);
    if (entries.length === 0) return [pad + "{}"];
    return entries.flatMap(([name, item]) => {
      const key = pad + scalarKey(name) + ":";
      if (!nested(item)) return [key + " " + scalar(item, depth)];
      // Lists begin at the column of their key, as kubectl writes them.
      return [key, ...block(item, Array.isArray(item) ? depth : depth + 1)];
    });
  }
  return [pad + scalar(value, depth)];
}

function nested(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

function scalarKey(name: string): string {
  return plainText.test(name) && !special.test(name) && !name.endsWith(" ") ? name : quoted(name);
}

function scalar(value: unknown, depth: number): string {
  if (Array.isArray(value)) return "[]";
  if (typeof value === "object" && value !== null) return "{}";
  if (typeof value !== "string") return value === undefined ? "null" : String(value);
  if (plainText.test(value) && !special.test(value) && !value.endsWith(" ")) return value;
  // Readable only if every character is one that a block keeps as it is, and the first line is not indented.
  if (value.includes("\n") && /^[\t\n\x20-\x7e\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe]*$/.test(value) && !/^[ \n]/.test(value) && !/[ \t]\n|[ \t]$/.test(value)) {
    const ends = value.endsWith("\n") ? (value.endsWith("\n\n") ? "+" : "") : "-";
    const body = ends === "-" ? value : value.slice(0, -1);
    const pad = "  ".repeat(depth + 1);
    return "|" + ends + "\n" + body.split("\n").map((line) => (line === "" ? "" : pad + line)).join("\n");
  }
  return quoted(value);
}

/** quoted writes a text in quotes. What YAML takes for a line break or does not allow is written as a number, which JSON does not ask for. */
function quoted(text: string): string {
  return JSON.stringify(text).replace(/[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** inexact returns where a value has a number that is too large for JavaScript, which has rounded it; undefined if it has none. */
export function inexact(value: unknown, path = ""): string | undefined {
  if (typeof value === "number") return Number.isInteger(value) && !Number.isSafeInteger(value) ? path : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  for (const [key, item] of Object.entries(value)) {
    const found = inexact(item, path === "" ? key : `${path}.${key}`);
    if (found !== undefined) return found;
  }
  return undefined;
}
