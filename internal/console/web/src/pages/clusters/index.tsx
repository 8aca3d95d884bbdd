// All members, and one of them.

import type { Page } from "..";
import { icons } from "../../ui/icons";
import { Member } from "./member";
import { Members } from "./members";

export const clusters: Page = {
  id: "clusters",
  title: "Clusters",
  key: "c",
  icon: icons.clusters,
  render: ({ parts }) => (parts[1] ? <Member key={parts[1]} name={parts[1]} /> : <Members />),
};
