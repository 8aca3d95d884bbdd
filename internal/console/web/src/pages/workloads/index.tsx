// Search over workloads, and one of them.

import type { Page } from "..";
import { icons } from "../../ui/icons";
import { SearchPage } from "./search";
import { WorkloadPage } from "./workload";

export const workloads: Page = {
  id: "workloads",
  title: "Workloads",
  key: "w",
  icon: icons.workloads,
  render: ({ parts }) => (parts[1] && parts[2] && parts[3] ? <WorkloadPage key={parts.join("/")} id={parts[1]} namespace={parts[2]} name={parts[3]} /> : <SearchPage />),
};
