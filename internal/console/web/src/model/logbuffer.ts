// The last lines of a log, in bounded memory.

/** So many lines are kept, and so many characters of each. */
export const mostLines = 10_000;
export const longestLine = 4_000;

// Escape sequences colour logs; the page shows text only.
const escapes = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const control = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** plain removes escape sequences and control characters. */
export function plain(text: string): string {
  return text.replace(escapes, "").replace(control, "").replaceAll("\t", "    ");
}

export class LogBuffer {
  lines: string[] = [];
  /** How many lines have come. */
  total = 0;
  private rest = "";
  /** The line that is being read is longer than what is kept of it. */
  private cut = false;

  /** add takes a piece of text, which may end in the middle of a line. */
  add(text: string): void {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      this.take(text.slice(start, end));
      this.end();
      start = end + 1;
    }
    this.take(text.slice(start));
    if (this.lines.length > mostLines) this.lines.splice(0, this.lines.length - mostLines);
  }

  /** finish ends a last line without an end. */
  finish(): void {
    if (this.rest !== "") this.end();
  }

  private take(piece: string): void {
    const room = longestLine - this.rest.length;
    if (piece.length > room) this.cut = true;
    this.rest += piece.slice(0, Math.max(0, room));
  }

  private end(): void {
    this.lines.push(plain(this.rest) + (this.cut ? " …" : ""));
    this.total++;
    this.rest = "";
    this.cut = false;
    // A piece with very many lines must not grow the list without bound.
    if (this.lines.length > 2 * mostLines) this.lines.splice(0, this.lines.length - mostLines);
  }
}
