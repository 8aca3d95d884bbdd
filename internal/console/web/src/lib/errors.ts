// Errors of the Kubernetes API, each as one sentence for a person.

export interface Status {
  kind?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: { name?: string; kind?: string; group?: string; retryAfterSeconds?: number };
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly retryAfter = 0,
  ) {
    super(message);
  }

  /** No gateway has answered. */
  get unreachable(): boolean {
    return this.status === 0;
  }
}

/** fromAnswer makes an error of an answer that is not a success. */
export function fromAnswer(status: number, body: string, retryAfter: string | null): ApiError {
  const wait = Number(retryAfter) || 0;
  try {
    const parsed = JSON.parse(body) as Status;
    if (parsed.kind === "Status") {
      return new ApiError(status, parsed.reason ?? "", sentence(parsed.message || plain(status)), wait || parsed.details?.retryAfterSeconds || 0);
    }
  } catch {
    // not JSON
  }
  return new ApiError(status, "", sentence(body.length > 0 && body.length < 300 ? body : plain(status)), wait);
}

/** fromFailure makes an error of a request that got no answer. */
export function fromFailure(cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError(0, "Unreachable", "The gateway does not answer.");
}

function plain(status: number): string {
  switch (status) {
    case 401:
      return "The gateway does not know you: sign in again";
    case 403:
      return "You may not do this";
    case 404:
      return "There is no such object";
    case 429:
      return "The gateway is busy: try again in a moment";
    default:
      return status >= 500 ? `The gateway failed with status ${status}` : `The gateway answered with status ${status}`;
  }
}

/** sentence begins with a capital letter unless it begins with a name, has no line breaks, and ends with a full stop. */
export function sentence(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  if (line === "") return "";
  const first = /^[a-z]+ /.test(line) ? line.charAt(0).toUpperCase() + line.slice(1) : line;
  return /[.!?…]$/.test(first) ? first : first + ".";
}
