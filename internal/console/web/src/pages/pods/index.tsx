// The pods of all members, and one of them.

import type { Page } from "..";
import { icons } from "../../ui/icons";
import { PodPage } from "./pod";
import { PodsPage } from "./list";

export const pods: Page = {
  id: "pods",
  title: "Pods",
  key: "p",
  icon: icons.pods,
  render: ({ parts }) => (parts[1] && parts[2] ? <PodPage key={parts[1] + "/" + parts[2]} namespace={parts[1]} name={parts[2]} /> : <PodsPage />),
};
