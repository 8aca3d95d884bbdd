// Values of unknown shape.

export type Fields = Record<string, unknown>;

/** object returns the fields of an object, none of anything else. */
export function object(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

/** list returns the elements of a list, none of anything else. */
export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** parseObject reads an object; text that is not one has no fields. */
export function parseObject(source: string | undefined): Fields {
  try {
    return object(JSON.parse(source ?? "{}"));
  } catch {
    return {};
  }
}
