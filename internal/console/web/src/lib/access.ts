// What the user may do, as the gateway says. What they may not do is not offered.

import { useEffect, useMemo } from "preact/hooks";

import { request } from "./http";
import { onOtherUser, session } from "./session";
import { useValue, Value } from "./signal";

export interface Access {
  verb: string;
  group?: string;
  resource: string;
  subresource?: string;
  namespace?: string;
  name?: string;
}

/** Rights change rarely; what is shown is at most so old. */
const keep = 60_000;

interface Answer {
  value: Value<boolean | undefined>;
  at: number;
}

const answers = new Map<string, Answer>();

// Another user has other rights, and so may the same user with another token.
onOtherUser(() => answers.clear());
session.subscribe(() => {
  if (session.get().state === "in") for (const answer of answers.values()) answer.at = 0;
});

/** may asks the gateway. It is undefined until the gateway has answered. */
export function may(access: Access): Value<boolean | undefined> {
  const key = JSON.stringify([access.verb, access.group ?? "", access.resource, access.subresource ?? "", access.namespace ?? "", access.name ?? ""]);
  let answer = answers.get(key);
  if (!answer) answers.set(key, (answer = { value: new Value<boolean | undefined>(undefined), at: 0 }));
  if (Date.now() - answer.at > keep && session.get().state === "in") {
    answer.at = Date.now();
    void ask(access, answer);
  }
  return answer.value;
}

async function ask(access: Access, answer: Answer): Promise<void> {
  try {
    const review = await request<{ status?: { allowed?: boolean } }>("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      method: "POST",
      body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes: access } },
    });
    answer.value.set(review.status?.allowed === true);
  } catch {
    answer.at = 0; // asked again when it is needed
  }
}

/** useMay tells whether the user may do something; undefined while that is not known. */
export function useMay(access: Access): boolean | undefined {
  const text = JSON.stringify(access);
  const value = useMemo(() => may(access), [text]);
  useEffect(() => {
    const timer = setInterval(() => void may(access), keep);
    return () => clearInterval(timer);
  }, [text]);
  return useValue(value);
}
