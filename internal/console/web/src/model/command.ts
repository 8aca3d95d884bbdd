// Parts of the commands that pages show.

/** quoted makes text one word of a shell. */
export function quoted(text: string): string {
  return /^[\w./=,:@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** inNamespace returns the flag for a namespace; nothing for objects that have none. */
export function inNamespace(namespace: string): string {
  return namespace === "" ? "" : ` -n ${quoted(namespace)}`;
}
