// The pages of the console. A page is one file or folder here that is listed below; docs/console.md says how to add one.

import type { VNode } from "preact";

import type { Route } from "../lib/route";
import { cells } from "./cells";
import { clusters } from "./clusters";
import { overview } from "./overview";
import { pods } from "./pods";
import { simulate } from "./simulate";
import { workloads } from "./workloads";

export interface Page {
  /** The first part of its address, #/id; empty for the overview. */
  id: string;
  /** Its name in the navigation. */
  title: string;
  /** The key that shows it, after g. */
  key?: string;
  icon: () => VNode;
  /** render shows the page; what follows the id in the address is in route.parts[1] and on. */
  render: (route: Route) => VNode;
}

export const pages: Page[] = [overview, cells, clusters, workloads, pods, simulate];

export function pageOf(route: Route): Page | undefined {
  return pages.find((page) => page.id === (route.parts[0] ?? ""));
}
