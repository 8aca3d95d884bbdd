// The parts of the API that the console reads. Everything that a user may write is optional, whatever the schema says.

export interface Metadata {
  name?: string;
  namespace?: string;
  uid?: string;
  generation?: number;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
}

export interface KubeList<T> {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items?: T[];
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Taint {
  key: string;
  value?: string;
  effect: string;
}

export type Resources = Record<string, string>;

export interface Cell extends KubeObject {
  spec?: { endpoint?: { server?: string; apiServers?: number }; weight?: number };
  status?: {
    conditions?: Condition[];
    version?: string;
    objects?: { templates?: number; bindings?: number; works?: number };
    backup?: { upToDateAt?: string; revision?: number; pendingKeys?: number };
  };
}

export type CellState = "Normal" | "In" | "Out" | "Failed";

export interface TopologyCell {
  name: string;
  weight?: number;
  targetWeight?: number;
  seed?: number;
  state?: CellState;
}

export interface CellTopology extends KubeObject {
  spec?: { cells?: TopologyCell[]; migration?: { window?: number; gracePeriod?: string } };
  status?: {
    observedGeneration?: number;
    fencedEpoch?: number;
    phase?: "Stable" | "Fencing" | "Promoting" | "Moving" | "Moved";
    conditions?: Condition[];
    change?: { epoch: number; startedAt?: string; movedObjects?: number; totalObjects?: number; movedSlots?: string };
    leftoversSince?: string;
    cells?: { name: string; slots?: number; targetSlots?: number; backupSlots?: number }[];
  };
}

export interface Cluster extends KubeObject {
  spec?: {
    syncMode?: "Push" | "Pull";
    apiEndpoint?: string;
    provider?: string;
    region?: string;
    zone?: string;
    zones?: string[];
    taints?: Taint[];
  };
  status?: {
    kubernetesVersion?: string;
    conditions?: Condition[];
    nodeSummary?: { totalNum?: number; readyNum?: number };
    resourceSummary?: { allocatable?: Resources; allocated?: Resources; allocating?: Resources };
    apiEnablements?: { groupVersion: string; resources?: { name: string; kind: string }[] }[];
  };
}

export interface LedgerClass {
  name: string;
  labels?: Record<string, string>;
  taints?: Taint[];
  allocatable?: Resources;
  potential?: boolean;
  nodes?: string[];
}

export interface Reservation {
  holder: string;
  workload?: { kind?: string; namespace?: string; name?: string };
  component?: string;
  total?: number;
  pods?: { class: string; count: number }[];
  requests?: Resources;
  priorityClass?: string;
  expires?: string;
}

export interface ClusterLedger extends KubeObject {
  classes?: LedgerClass[];
  reservations?: Reservation[];
  observedAt?: string;
  holders?: string[];
  quotas?: { namespace: string; left?: Resources }[];
}

export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  note?: string;
  count?: number;
  eventTime?: string | null;
  firstTimestamp?: string | null;
  lastTimestamp?: string | null;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject?: { kind?: string; namespace?: string; name?: string; apiVersion?: string };
  source?: { component?: string; host?: string };
  reportingComponent?: string;
}

export const paths = {
  cells: "/apis/cellplane.io/v1alpha1/cells",
  topologies: "/apis/cellplane.io/v1alpha1/celltopologies",
  ledgers: "/apis/cellplane.io/v1alpha1/clusterledgers",
  profiles: "/apis/cellplane.io/v1alpha1/clusterprofiles",
  clusters: "/apis/cluster.karmada.io/v1alpha1/clusters",
  bindings: "/apis/work.karmada.io/v1alpha2/resourcebindings",
};

export function condition(object: { status?: { conditions?: Condition[] } } | undefined | null, type: string): Condition | undefined {
  return object?.status?.conditions?.find((c) => c.type === type);
}

/** timeOf returns when an event happened last, in milliseconds. */
export function timeOf(event: KubeEvent): number {
  const text = event.series?.lastObservedTime ?? event.lastTimestamp ?? event.eventTime ?? event.firstTimestamp ?? event.metadata.creationTimestamp;
  return text ? Date.parse(text) : 0;
}
