// Quantities of Kubernetes, like 250m, 1.5Gi and 1e3.

const factors: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** quantity returns the number; 0 if the text is not a quantity. */
export function quantity(text: string | number | undefined): number {
  if (typeof text === "number") return text;
  const match = /^([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))$/.exec(text ?? "");
  if (!match) return 0;
  const number = Number(match[1]);
  if (match[2] !== undefined) return number * 10 ** Number(match[2]);
  return number * (factors[match[3] ?? ""] ?? 0);
}

export function total(...all: (Record<string, string> | undefined)[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const one of all) for (const [name, text] of Object.entries(one ?? {})) sum[name] = (sum[name] ?? 0) + quantity(text);
  return sum;
}

const binary = ["Ki", "Mi", "Gi", "Ti", "Pi"];

/** show returns a quantity of a resource for people. */
export function show(resource: string, value: number): string {
  if (isBytes(resource)) {
    let unit = "";
    let left = value;
    for (const next of binary) {
      if (Math.abs(left) < 1024) break;
      left /= 1024;
      unit = next;
    }
    return digits(left) + (unit ? " " + unit + "B" : " B");
  }
  return digits(value);
}

function isBytes(resource: string): boolean {
  return resource === "memory" || resource.includes("storage") || resource.startsWith("hugepages-");
}

/** digits shows three significant digits, and groups long numbers. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 10) return value.toFixed(1).replace(/\.0$/, "");
  if (size < 1) return String(Number(value.toPrecision(3)));
  return value.toFixed(2).replace(/\.?0+$/, "");
}
