package size

import (
	_ "embed" // for the costs

	"sigs.k8s.io/yaml"
)

//go:embed costs.yaml
var costsFile []byte

// Figure is a cost, either measured or assumed.
type Figure struct {
	Value float64 `json:"value"`
	What  string  `json:"what"`
	// Command measured the figure, and Quote is from what docs/performance.md says about it.
	Command string `json:"command,omitempty"`
	Quote   string `json:"quote,omitempty"`
	// Assumption is the reason of a figure that was not measured.
	Assumption string `json:"assumption,omitempty"`
}

// Costs are all figures. Their meaning is in costs.yaml.
type Costs struct {
	CellWorkloads              Figure `json:"cellWorkloads"`
	CellWorks                  Figure `json:"cellWorks"`
	MeasuredClusters           Figure `json:"measuredClusters"`
	EngineMiB                  Figure `json:"engineMiB"`
	EngineWorkloadKiB          Figure `json:"engineWorkloadKiB"`
	APIServerMiB               Figure `json:"apiServerMiB"`
	APIServerWorkloadKiB       Figure `json:"apiServerWorkloadKiB"`
	EtcdMiB                    Figure `json:"etcdMiB"`
	EtcdWorkloadKiB            Figure `json:"etcdWorkloadKiB"`
	StoredWorkloadKiB          Figure `json:"storedWorkloadKiB"`
	ChangeAPIServerSeconds     Figure `json:"changeAPIServerSeconds"`
	ChangeEtcdSeconds          Figure `json:"changeEtcdSeconds"`
	ChangeEngineSeconds        Figure `json:"changeEngineSeconds"`
	ChangeWrites               Figure `json:"changeWrites"`
	RequestCellSeconds         Figure `json:"requestCellSeconds"`
	PlacedPerSecond            Figure `json:"placedPerSecond"`
	RequestGatewaySeconds      Figure `json:"requestGatewaySeconds"`
	PodBytes                   Figure `json:"podBytes"`
	PodsIngestedPerSecond      Figure `json:"podsIngestedPerSecond"`
	PodUpdatesPerSecond        Figure `json:"podUpdatesPerSecond"`
	MeasuredPods               Figure `json:"measuredPods"`
	SchedulingNodeBytes        Figure `json:"schedulingNodeBytes"`
	BackupSeconds              Figure `json:"backupSeconds"`
	MeasuredNodes              Figure `json:"measuredNodes"`
	MeasuredFederationClusters Figure `json:"measuredFederationClusters"`
	GatewayMiB                 Figure `json:"gatewayMiB"`
	HubManagerMiB              Figure `json:"hubManagerMiB"`
	ControllerManagerMiB       Figure `json:"controllerManagerMiB"`
	ClusterGatewayMiB          Figure `json:"clusterGatewayMiB"`

	MemoryHeadroom     Figure `json:"memoryHeadroom"`
	CPUHeadroom        Figure `json:"cpuHeadroom"`
	StorageHeadroom    Figure `json:"storageHeadroom"`
	PeakHourShare      Figure `json:"peakHourShare"`
	UpdatesPerPod      Figure `json:"updatesPerPod"`
	NodePods           Figure `json:"nodePods"`
	ColdStartSeconds   Figure `json:"coldStartSeconds"`
	RequestsPerService Figure `json:"requestsPerService"`
	PoliciesPerService Figure `json:"policiesPerService"`
	PolicyKiB          Figure `json:"policyKiB"`
	LedgerKiB          Figure `json:"ledgerKiB"`
	MemoryBudgetMiB    Figure `json:"memoryBudgetMiB"`
	CoresPerGateway    Figure `json:"coresPerGateway"`
	MinimumCores       Figure `json:"minimumCores"`
	EtcdQuotaGiB       Figure `json:"etcdQuotaGiB"`
	MaximumCells       Figure `json:"maximumCells"`
}

// MeasuredCosts returns the costs of this version.
func MeasuredCosts() *Costs {
	costs := &Costs{}
	if err := yaml.UnmarshalStrict(costsFile, costs); err != nil {
		panic(err) // the file is embedded and tested
	}
	return costs
}
