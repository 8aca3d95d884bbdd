// The screen of a terminal, as far as shells, pagers and top need one: text, a cursor, and the usual sequences that move it. Colours are left out.

const mostHistory = 2_000;

export class Screen {
  /** Lines that have left the screen at its top. */
  history: string[] = [];
  row = 0;
  column = 0;
  /** Keys of the cursor send other sequences, for programs with a screen of their own. */
  applicationKeys = false;
  bracketedPaste = false;
  private lines: string[][];
  private other?: { lines: string[][]; row: number; column: number };
  private saved = { row: 0, column: 0 };
  private top = 0;
  private bottom: number;
  private pending = "";
  private wraps = false;

  constructor(
    public rows: number,
    public columns: number,
    /** reply sends text back to the program. */
    private readonly reply: (text: string) => void = () => undefined,
  ) {
    this.bottom = rows - 1;
    this.lines = Array.from({ length: rows }, () => []);
  }

  /** text returns the lines of the screen. */
  text(): string[] {
    return this.lines.map((line) => Array.from(line, (c) => c ?? " ").join(""));
  }

  resize(rows: number, columns: number): void {
    while (this.lines.length > rows) {
      if (this.row < this.lines.length - 1 && this.lines.at(-1)!.length === 0) this.lines.pop();
      else {
        this.keep(this.lines.shift()!);
        this.row = Math.max(0, this.row - 1);
      }
    }
    while (this.lines.length < rows) this.lines.push([]);
    this.rows = rows;
    this.columns = columns;
    this.top = 0;
    this.bottom = rows - 1;
    this.row = Math.min(this.row, rows - 1);
    this.column = Math.min(this.column, columns - 1);
  }

  write(text: string): void {
    const all = this.pending + text;
    this.pending = "";
    let i = 0;
    while (i < all.length) {
      const code = all.codePointAt(i)!;
      if (code === 0x1b) {
        const length = this.escape(all, i);
        if (length === 0) {
          // The sequence goes on in the next piece; one that never ends is dropped.
          this.pending = all.length - i > 4096 ? "" : all.slice(i);
          return;
        }
        i += length;
        continue;
      }
      if (code < 0x20 || code === 0x7f) this.control(code);
      else this.put(String.fromCodePoint(code));
      i += code > 0xffff ? 2 : 1;
    }
  }

  private control(code: number): void {
    switch (code) {
      case 0x08:
        this.column = Math.max(0, this.column - 1);
        break;
      case 0x09:
        this.column = Math.min(this.columns - 1, (Math.floor(this.column / 8) + 1) * 8);
        break;
      case 0x0a:
      case 0x0b:
      case 0x0c:
        this.feed();
        break;
      case 0x0d:
        this.column = 0;
        break;
    }
    this.wraps = false;
  }

  private put(character: string): void {
    if (this.wraps) {
      this.column = 0;
      this.feed();
      this.wraps = false;
    }
    const line = this.lines[this.row]!;
    while (line.length < this.column) line.push(" ");
    line[this.column] = character;
    if (this.column === this.columns - 1) this.wraps = true;
    else this.column++;
  }

  private keep(line: string[]): void {
    if (this.other) return; // a screen of its own has no history
    this.history.push(line.join(""));
    if (this.history.length > mostHistory) this.history.splice(0, this.history.length - mostHistory);
  }

  private feed(): void {
    if (this.row === this.bottom) this.scroll(1);
    else if (this.row < this.rows - 1) this.row++;
  }

  private scroll(lines: number): void {
    for (let i = 0; i < Math.min(Math.abs(lines), this.rows); i++) {
      if (lines > 0) {
        const gone = this.lines.splice(this.top, 1)[0]!;
        if (this.top === 0) this.keep(gone);
        this.lines.splice(this.bottom, 0, []);
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(this.top, 0, []);
      }
    }
  }

  /** escape handles a sequence and returns its length, 0 if its end has not come yet. */
  private escape(all: string, at: number): number {
    const kind = all[at + 1];
    if (kind === undefined) return 0;
    if (kind === "]" || kind === "P" || kind === "_" || kind === "^" || kind === "X") {
      // A title, or data that is not for this terminal.
      for (let i = at + 2; i < all.length; i++) {
        if (all[i] === "\u0007") return i + 1 - at;
        if (all[i] === "\u001b" && all[i + 1] === "\\") return i + 2 - at;
      }
      return 0;
    }
    if (kind === "[") {
      const match = /^\u001b\[([<-?]?)([0-9;:]*)[ -/]*([@-~])/.exec(all.slice(at, at + 80));
      if (match) {
        this.csi(match[1]!, match[2]!.split(/[;:]/).map((n) => Math.min(9999, Number(n) || 0)), match[3]!);
        return match[0].length;
      }
      return all.length - at > 80 ? 2 : 0;
    }
    if (/[ -/]/.test(kind)) return all[at + 2] === undefined ? 0 : 3;
    switch (kind) {
      case "7":
        this.saved = { row: this.row, column: this.column };
        break;
      case "8":
        this.move(this.saved.row, this.saved.column);
        break;
      case "D":
        this.feed();
        break;
      case "E":
        this.column = 0;
        this.feed();
        break;
      case "M":
        if (this.row === this.top) this.scroll(-1);
        else this.row = Math.max(0, this.row - 1);
        break;
      case "c":
        this.lines = Array.from({ length: this.rows }, () => []);
        this.move(0, 0);
        break;
    }
    return 2;
  }

  private move(row: number, column: number): void {
    this.row = Math.min(this.rows - 1, Math.max(0, row));
    this.column = Math.min(this.columns - 1, Math.max(0, column));
    this.wraps = false;
  }

  private csi(mark: string, numbers: number[], final: string): void {
    const first = numbers[0] ?? 0;
    const n = Math.max(1, first);
    const line = this.lines[this.row]!;
    if (mark === "?") {
      if (final === "h" || final === "l") for (const mode of numbers) this.mode(mode, final === "h");
      return;
    }
    if (mark !== "") return;
    switch (final) {
      case "A": this.move(this.row - n, this.column); break;
      case "B": case "e": this.move(this.row + n, this.column); break;
      case "C": case "a": this.move(this.row, this.column + n); break;
      case "D": this.move(this.row, this.column - n); break;
      case "E": this.move(this.row + n, 0); break;
      case "F": this.move(this.row - n, 0); break;
      case "G": case "`": this.move(this.row, n - 1); break;
      case "d": this.move(n - 1, this.column); break;
      case "H": case "f": this.move(n - 1, Math.max(1, numbers[1] ?? 1) - 1); break;
      case "J":
        if (first === 0 || first === 2) {
          if (first === 0) line.length = Math.min(line.length, this.column);
          for (let i = first === 2 ? 0 : this.row + 1; i < this.rows; i++) this.lines[i] = [];
        } else if (first === 1) {
          for (let i = 0; i < this.row; i++) this.lines[i] = [];
          line.fill(" ", 0, this.column + 1);
        } else if (first === 3) this.history = [];
        break;
      case "K":
        if (first === 0) line.length = Math.min(line.length, this.column);
        else if (first === 1) line.fill(" ", 0, this.column + 1);
        else this.lines[this.row] = [];
        break;
      case "P": line.splice(this.column, n); break;
      case "X": for (let i = this.column; i < Math.min(line.length, this.column + n); i++) line[i] = " "; break;
      case "@":
        if (this.column < line.length) line.splice(this.column, 0, ...Array.from({ length: Math.min(n, this.columns) }, () => " "));
        line.length = Math.min(line.length, this.columns);
        break;
      case "L": this.within(() => this.scroll(-n)); break;
      case "M": this.within(() => this.scroll(n)); break;
      case "S": this.scroll(n); break;
      case "T": this.scroll(-n); break;
      case "r":
        this.top = Math.min(this.rows - 1, n - 1);
        this.bottom = Math.min(this.rows - 1, Math.max(this.top, (numbers[1] || this.rows) - 1));
        this.move(0, 0);
        break;
      case "s": this.saved = { row: this.row, column: this.column }; break;
      case "u": this.move(this.saved.row, this.saved.column); break;
      case "n":
        if (first === 6) this.reply(`\u001b[${this.row + 1};${this.column + 1}R`);
        break;
      case "c": this.reply("\u001b[?6c"); break;
    }
  }

  /** within scrolls from the line of the cursor on. */
  private within(change: () => void): void {
    if (this.row < this.top || this.row > this.bottom) return;
    const top = this.top;
    this.top = this.row;
    const history = this.history;
    change();
    this.history = history;
    this.top = top;
    this.column = 0;
  }

  private mode(mode: number, on: boolean): void {
    switch (mode) {
      case 1:
        this.applicationKeys = on;
        break;
      case 2004:
        this.bracketedPaste = on;
        break;
      case 47:
      case 1047:
      case 1049:
        if (on && !this.other) {
          this.other = { lines: this.lines, row: this.row, column: this.column };
          this.lines = Array.from({ length: this.rows }, () => []);
          this.move(0, 0);
        } else if (!on && this.other) {
          const { lines, row, column } = this.other;
          this.other = undefined;
          this.lines = lines;
          this.resize(this.rows, this.columns);
          this.move(row, column);
        }
        this.top = 0;
        this.bottom = this.rows - 1;
        break;
    }
  }
}

/** sequenceOf returns what a key sends; undefined for keys that send their text. */
export function sequenceOf(event: KeyboardEvent, screen: Screen): string | undefined {
  const arrow = screen.applicationKeys ? "\u001bO" : "\u001b[";
  const named: Record<string, string> = {
    Enter: "\r", Backspace: "\u007f", Tab: "\t", Escape: "\u001b", ArrowUp: arrow + "A", ArrowDown: arrow + "B", ArrowRight: arrow + "C", ArrowLeft: arrow + "D",
    Home: "\u001b[H", End: "\u001b[F", Delete: "\u001b[3~", Insert: "\u001b[2~", PageUp: "\u001b[5~", PageDown: "\u001b[6~",
  };
  if (event.isComposing || event.metaKey) return undefined;
  if (event.ctrlKey && !event.altKey && !event.shiftKey && /^[a-z[\\\]^_@ ]$/i.test(event.key)) {
    return event.key === " " ? "\u0000" : String.fromCharCode(event.key.toUpperCase().charCodeAt(0) & 0x1f);
  }
  if (event.ctrlKey) return undefined;
  const sequence = named[event.key];
  if (sequence !== undefined) return event.shiftKey && event.key !== "Enter" && event.key !== "Backspace" ? undefined : sequence;
  if (event.altKey && event.key.length === 1 && /^[\x20-\x7e]$/.test(event.key)) return "\u001b" + event.key;
  return undefined;
}
