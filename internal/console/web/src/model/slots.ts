// Which cell owns which slot: the same arithmetic as the Go package internal/slots, to the bit. A test compares both.
//
// Numbers of 64 bits are two numbers of 32 bits, high and low: BigInt is too slow for 16 384 slots while somebody waits.

export const count = 16384;

export type State = "Normal" | "In" | "Out" | "Failed";

export interface Cell {
  name: string;
  seed?: number;
  weight: number;
  targetWeight?: number;
  state: State;
}

export const none = 255;

/** The owners of all slots, by the place of cells in name order. */
export interface SlotMap {
  cells: Cell[];
  old: Uint8Array;
  next: Uint8Array;
  oldBackup: Uint8Array;
  backup: Uint8Array;
}

// The result of an operation on 64 bits.
let hi = 0;
let lo = 0;

/** high returns the upper half of the product of two numbers of 32 bits. */
function high(a: number, b: number): number {
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const t = a1 * b0 + ((a0 * b0) >>> 16);
  const u = a0 * b1 + (t & 0xffff);
  return (a1 * b1 + (t >>> 16) + (u >>> 16)) >>> 0;
}

function multiply(ah: number, al: number, bh: number, bl: number): void {
  hi = (high(al, bl) + Math.imul(al, bh) + Math.imul(ah, bl)) >>> 0;
  lo = Math.imul(al, bl) >>> 0;
}

function add(ah: number, al: number, bh: number, bl: number): void {
  const sum = al + bl;
  lo = sum >>> 0;
  hi = (ah + bh + (sum > 0xffffffff ? 1 : 0)) >>> 0;
}

/** rotate turns to the left, by 1 to 31. */
function rotate(h: number, l: number, by: number): void {
  hi = ((h << by) | (l >>> (32 - by))) >>> 0;
  lo = ((l << by) | (h >>> (32 - by))) >>> 0;
}

// The primes of xxHash64.
const p1h = 0x9e3779b1, p1l = 0x85ebca87;
const p2h = 0xc2b2ae3d, p2l = 0x27d4eb4f;
const p3h = 0x165667b1, p3l = 0x9e3779f9;
const p4h = 0x85ebca77, p4l = 0xc2b2ae63;
const p5h = 0x27d4eb2f, p5l = 0x165667c5;

function word(bytes: Uint8Array, at: number): number {
  return (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0;
}

/** round mixes a word of 64 bits into an accumulator. */
function round(ah: number, al: number, wh: number, wl: number): void {
  multiply(wh, wl, p2h, p2l);
  add(ah, al, hi, lo);
  rotate(hi, lo, 31);
  multiply(hi, lo, p1h, p1l);
}

const lanes = new Uint32Array(8);

/** hash sets hi and lo to the xxHash64 of bytes with seed 0. */
function hash(bytes: Uint8Array, length: number): void {
  let at = 0;
  let h: number, l: number;
  if (length >= 32) {
    add(p1h, p1l, p2h, p2l);
    lanes.set([hi, lo, p2h, p2l, 0, 0, ~p1h, -p1l]);
    for (; at + 32 <= length; at += 32) {
      for (let i = 0; i < 4; i++) {
        const from = at + 8 * i;
        round(lanes[2 * i]!, lanes[2 * i + 1]!, word(bytes, from + 4), word(bytes, from));
        lanes[2 * i] = hi;
        lanes[2 * i + 1] = lo;
      }
    }
    rotate(lanes[0]!, lanes[1]!, 1);
    h = hi;
    l = lo;
    const turns = [7, 12, 18];
    for (let i = 1; i < 4; i++) {
      rotate(lanes[2 * i]!, lanes[2 * i + 1]!, turns[i - 1]!);
      add(h, l, hi, lo);
      h = hi;
      l = lo;
    }
    for (let i = 0; i < 4; i++) {
      round(0, 0, lanes[2 * i]!, lanes[2 * i + 1]!);
      multiply((h ^ hi) >>> 0, (l ^ lo) >>> 0, p1h, p1l);
      add(hi, lo, p4h, p4l);
      h = hi;
      l = lo;
    }
  } else {
    h = p5h;
    l = p5l;
  }
  add(h, l, 0, length);
  h = hi;
  l = lo;
  for (; at + 8 <= length; at += 8) {
    round(0, 0, word(bytes, at + 4), word(bytes, at));
    rotate((h ^ hi) >>> 0, (l ^ lo) >>> 0, 27);
    multiply(hi, lo, p1h, p1l);
    add(hi, lo, p4h, p4l);
    h = hi;
    l = lo;
  }
  if (at + 4 <= length) {
    multiply(0, word(bytes, at), p1h, p1l);
    rotate((h ^ hi) >>> 0, (l ^ lo) >>> 0, 23);
    multiply(hi, lo, p2h, p2l);
    add(hi, lo, p3h, p3l);
    h = hi;
    l = lo;
    at += 4;
  }
  for (; at < length; at++) {
    multiply(0, bytes[at]!, p5h, p5l);
    rotate((h ^ hi) >>> 0, (l ^ lo) >>> 0, 11);
    multiply(hi, lo, p1h, p1l);
    h = hi;
    l = lo;
  }
  l = (l ^ (h >>> 1)) >>> 0; // h ^= h >> 33
  multiply(h, l, p2h, p2l);
  const shifted = hi >>> 29; // h ^= h >> 29
  l = (lo ^ ((lo >>> 29) | (hi << 3))) >>> 0;
  h = (hi ^ shifted) >>> 0;
  multiply(h, l, p3h, p3l);
  lo = (lo ^ hi) >>> 0; // h ^= h >> 32
}

/** slotOf returns the slot of an object. */
export function slotOf(namespace: string, name: string): number {
  const bytes = new TextEncoder().encode(namespace + "/" + name);
  hash(bytes, bytes.length);
  return lo % count;
}

/** keyOf returns the bytes that a cell's draws are hashed from: its name, zero, two bytes for the slot, and the seed unless it is 0. */
function keyOf(name: string, seed: number): Uint8Array {
  const text = new TextEncoder().encode(name);
  const key = new Uint8Array(text.length + (seed ? 4 : 0) + 3);
  key.set(text);
  if (seed) new DataView(key.buffer).setUint32(text.length + 3, seed);
  return key;
}

const fraction = 40;
const whole = 2 ** fraction;

/** logarithm returns −log2((h+½) ÷ 2⁶⁴) with 40 bits after the point, of the number in hi and lo, and at least 1. */
function logarithm(): number {
  let h = hi, l = lo;
  const lead = h !== 0 ? Math.clz32(h) : 32 + Math.clz32(l);
  if (lead === 64) {
    h = 0x80000000;
    l = 0;
  } else if (lead > 0) {
    // The number and its added half, moved to the left.
    const by = lead & 31;
    if (lead >= 32) {
      h = l;
      l = 0;
    }
    if (by > 0) {
      h = ((h << by) | (l >>> (32 - by))) >>> 0;
      l = (l << by) >>> 0;
    }
    if (lead > 32) h = (h | (1 << (lead - 33))) >>> 0;
    else l = (l | (1 << (lead - 1))) >>> 0;
  }
  let bits = 0;
  for (let i = 0; i < fraction; i++) {
    // The upper half of the square.
    const llh = high(l, l);
    const hlh = high(h, l), hll = Math.imul(h, l) >>> 0;
    const hhh = high(h, h), hhl = Math.imul(h, h) >>> 0;
    const w1 = llh + 2 * hll;
    const w2 = hhl + 2 * hlh + Math.floor(w1 / 4294967296);
    const w3 = (hhh + Math.floor(w2 / 4294967296)) >>> 0;
    const carry = w3 >>> 31;
    bits = bits * 2 + carry;
    if (carry) {
      h = w3;
      l = w2 >>> 0;
    } else {
      h = ((w3 << 1) | ((w2 >>> 0) >>> 31)) >>> 0;
      l = (w2 << 1) >>> 0;
    }
  }
  return Math.max(65 * whole - ((64 - lead) * whole + bits), 1);
}

const drawn = new Map<string, Float64Array>();

/** draws returns a cell's number for each slot. The cell with the smallest draw ÷ weight owns the slot. */
export function draws(name: string, seed = 0): Float64Array {
  const id = name + "\0" + seed;
  let found = drawn.get(id);
  if (found) return found;
  found = new Float64Array(count);
  const { key, place } = prepared(name, seed);
  for (let slot = 0; slot < count; slot++) {
    key[place] = slot >>> 8;
    key[place + 1] = slot & 0xff;
    hash(key, key.length);
    found[slot] = logarithm();
  }
  if (drawn.size > 200) drawn.clear();
  drawn.set(id, found);
  return found;
}

function prepared(name: string, seed: number): { key: Uint8Array; place: number } {
  return { key: keyOf(name, seed), place: new TextEncoder().encode(name).length + 1 };
}

/** beats tells whether draw a with weight wa is strictly better than draw b with weight wb. */
function beats(a: number, wa: number, b: number, wb: number): boolean {
  const left = a * wb, right = b * wa;
  if (Math.abs(left - right) > 1e-14 * right) return left < right;
  return BigInt(a) * BigInt(wb) < BigInt(b) * BigInt(wa);
}

class Race {
  readonly first = new Uint8Array(count).fill(none);
  readonly second = new Uint8Array(count).fill(none);
  private entered: { draws: Float64Array; weight: number }[] = [];

  /** enter adds a cell. Cells enter in name order, so a tie goes to the first name. */
  enter(cell: number, weight: number, numbers: Float64Array): void {
    this.entered[cell] = { draws: numbers, weight };
    for (let slot = 0; slot < count; slot++) {
      const draw = numbers[slot]!;
      const better = (than: number) => than === none || beats(draw, weight, this.entered[than]!.draws[slot]!, this.entered[than]!.weight);
      if (better(this.first[slot]!)) {
        this.second[slot] = this.first[slot]!;
        this.first[slot] = cell;
      } else if (better(this.second[slot]!)) {
        this.second[slot] = cell;
      }
    }
  }

  get empty(): boolean {
    return this.first[0] === none;
  }

  drawOf(slot: number): { draw: number; weight: number } {
    const winner = this.entered[this.first[slot]!]!;
    return { draw: winner.draws[slot]!, weight: winner.weight };
  }
}

/** compile computes the owners of all slots. */
export function compile(cells: Cell[]): SlotMap {
  const sorted = [...cells].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  const before = new Race(), after = new Race();
  sorted.forEach((cell, i) => {
    if (cell.state === "Failed") return;
    const numbers = draws(cell.name, cell.seed ?? 0);
    if (cell.state !== "In") before.enter(i, cell.weight, numbers);
    if (cell.state !== "Out") after.enter(i, cell.targetWeight || cell.weight, numbers);
  });
  const first = before.empty ? after : before;
  return { cells: sorted, old: first.first, oldBackup: first.second, next: after.first, backup: after.second };
}

const seeds = 128;
const balanced = 0.01;

/** chooseSeed returns the seed with which a cell should join: one that leaves every cell close to the share of its weight. */
export async function chooseSeed(cells: Cell[], joining: { name: string; weight: number }): Promise<number> {
  const stay = new Race();
  const weights: number[] = [];
  // The order of the topology, as in Go: it decides about ties.
  for (const cell of cells) {
    if (cell.name === joining.name || cell.state === "Out" || cell.state === "Failed") continue;
    const weight = cell.targetWeight || cell.weight;
    stay.enter(weights.length, weight, draws(cell.name, cell.seed ?? 0));
    weights.push(weight);
  }
  if (weights.length === 0) return 0;
  weights.push(joining.weight);
  const limits = new Float64Array(count);
  for (let slot = 0; slot < count; slot++) {
    const { draw, weight } = stay.drawOf(slot);
    limits[slot] = 2 ** ((-draw / whole) * (joining.weight / weight) + 64);
  }
  let best = 0;
  let least = Infinity;
  for (let seed = 0; seed < seeds && least > balanced; seed++) {
    const counts = new Array<number>(weights.length).fill(0);
    const { key, place } = prepared(joining.name, seed);
    for (let slot = 0; slot < count; slot++) {
      key[place] = slot >>> 8;
      key[place + 1] = slot & 0xff;
      hash(key, key.length);
      const winner = hi * 4294967296 + lo > limits[slot]! ? weights.length - 1 : stay.first[slot]!;
      counts[winner]!++;
    }
    await new Promise((resolve) => setTimeout(resolve)); // the page stays responsive
    const off = furthest(counts, weights);
    if (off < least) {
      best = seed;
      least = off;
    }
  }
  return best;
}

function furthest(counts: number[], weights: number[]): number {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return counts.reduce((off, n, i) => Math.max(off, Math.abs(((n / count) * total) / weights[i]! - 1)), 0);
}
