// The overview: the federation in one picture, what goes on, and what needs a person.

import type { Page } from "..";
import { useCollection } from "../../lib/collection";
import { paths, type Cell, type CellTopology, type Cluster, type ClusterLedger } from "../../lib/kube";
import { icons } from "../../ui/icons";
import { Head, Panel, Stale } from "../../ui/parts";
import { GoingOn } from "./events";
import { NeedsPerson } from "./needs";
import { Picture } from "./picture";

export const overview: Page = { id: "", title: "Overview", key: "o", icon: icons.overview, render: () => <Overview /> };

function Overview() {
  const cells = useCollection<Cell>(paths.cells);
  const topologies = useCollection<CellTopology>(paths.topologies);
  const clusters = useCollection<Cluster>(paths.clusters);
  const ledgers = useCollection<ClusterLedger>(paths.ledgers);
  const all = { cells, topologies, clusters, ledgers };
  return (
    <>
      <Head document="Overview" title="Overview" actions={<Stale of={[cells, topologies, clusters, ledgers]} />} />
      <NeedsPerson {...all} />
      <Panel title="The federation" note="one API over many clusters; its control plane is cut into cells"><Picture {...all} /></Panel>
      <GoingOn />
    </>
  );
}
