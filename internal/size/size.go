package size

import (
	"fmt"
	"math"
	"strconv"
)

// Plan is the size of a federation.
type Plan struct {
	Input Input `json:"input"`
	Cells int   `json:"cells"`
	// CellsReason says why there are so many.
	CellsReason string `json:"cellsReason"`
	Parts       []Part `json:"parts"`
	Total       Total  `json:"total"`
	// Notes say what follows from the size, and what was not measured.
	Notes []string `json:"notes,omitempty"`
}

// Part is a program with its replicas.
type Part struct {
	Where    string `json:"where"` // each cell, hub, or federation
	Name     string `json:"name"`
	Times    int    `json:"times"`    // how many control planes have it
	Replicas int    `json:"replicas"` // in each of them
	// What each replica needs.
	Cores      float64 `json:"cores"`
	MemoryMiB  int     `json:"memoryMiB"`
	StorageGiB int     `json:"storageGiB,omitempty"`
	// Why it needs that.
	Reasons []string `json:"reasons"`
}

// Total is what all replicas of all parts need.
type Total struct {
	Processes  int     `json:"processes"`
	Cores      float64 `json:"cores"`
	MemoryGiB  float64 `json:"memoryGiB"`
	StorageGiB int     `json:"storageGiB"`
}

// The places of parts.
const (
	eachCell   = "each cell"
	hub        = "hub"
	federation = "federation"
)

// sizing holds what the parts are computed from.
type sizing struct {
	*Costs
	in        Input
	cells     int
	workloads float64 // of a cell while another one has failed
	spread    float64 // clusters of a workload, relative to the measurements; at least 1
	changes   float64 // per second at the peak, in all cells
	policies  float64
}

// New computes the size of a federation.
func New(in Input, costs *Costs) (*Plan, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if in.RequestsPerSecond == 0 {
		in.RequestsPerSecond = int(math.Ceil(float64(in.Services) * costs.RequestsPerService.Value))
	}
	templates := float64(in.Services) * float64(in.TemplatesPerService)
	largest := math.Floor(min(costs.CellWorkloads.Value, costs.CellWorks.Value/float64(in.ClustersPerService)))
	cells := math.Ceil(templates/max(largest, 1)) + 1
	if cells > costs.MaximumCells.Value || largest < 1 {
		return nil, fmt.Errorf("%s templates in %d clusters each would need %s cells of the largest measured size; at most %s are possible",
			number(templates), in.ClustersPerService, number(cells), number(costs.MaximumCells.Value))
	}
	s := &sizing{
		Costs: costs, in: in, cells: int(cells), workloads: math.Ceil(templates / (cells - 1)),
		spread:   max(1, float64(in.ClustersPerService)/costs.MeasuredClusters.Value),
		changes:  float64(in.ChangesPerDay) * costs.PeakHourShare.Value / 3600,
		policies: math.Ceil(float64(in.Services) * costs.PoliciesPerService.Value),
	}
	plan := &Plan{
		Input: in, Cells: s.cells,
		CellsReason: fmt.Sprintf("%s templates, at most %s in a cell, which is the largest measured size for %d clusters each, and one cell more, so that the others can take over a failed one",
			number(templates), number(largest), in.ClustersPerService),
		Parts: append(s.cellParts(), append(s.hubParts(), s.gateway(), s.clusterGateway(), s.controllerManager())...),
	}
	for _, part := range plan.Parts {
		replicas := part.Times * part.Replicas
		plan.Total.Processes += replicas
		plan.Total.Cores += float64(replicas) * part.Cores
		plan.Total.MemoryGiB += float64(replicas*part.MemoryMiB) / 1024
		plan.Total.StorageGiB += replicas * part.StorageGiB
	}
	plan.Notes = s.notes(templates)
	return plan, nil
}

// cellParts are the parts of each cell. Each replica can carry the load alone, while a whole cell has failed.
func (s *sizing) cellParts() []Part {
	others := float64(s.cells - 1)
	changes, requests := s.changes/others, float64(s.in.RequestsPerSecond)/others
	w := number(s.workloads)
	load := fmt.Sprintf("%s changes a second", number(changes))

	apiServer := s.part(eachCell, "kube-apiserver", 2, "two, because one must be enough")
	s.cores(&apiServer, changes*s.ChangeAPIServerSeconds.Value*s.spread+requests*s.RequestCellSeconds.Value,
		fmt.Sprintf("%s × %g s%s + %s requests a second × %g s, with etcd's share", load, s.ChangeAPIServerSeconds.Value, s.spreading(), number(requests), s.RequestCellSeconds.Value))
	s.memory(&apiServer, s.APIServerMiB.Value+(s.APIServerWorkloadKiB.Value*s.workloads*s.spread+s.policies*s.PolicyKiB.Value*s.cacheFactor())/1024,
		fmt.Sprintf("%s MiB + %s KiB × %s workloads%s + %s policies × %s KiB × %s in caches", number(s.APIServerMiB.Value), number(s.APIServerWorkloadKiB.Value), w, s.spreading(),
			number(s.policies), number(s.PolicyKiB.Value), number(s.cacheFactor())))

	engine := s.part(eachCell, "engine", 2, "two, of which one stands by")
	s.cores(&engine, changes*s.ChangeEngineSeconds.Value*s.spread, fmt.Sprintf("%s × %g s%s", load, s.ChangeEngineSeconds.Value, s.spreading()))
	s.memory(&engine, s.EngineMiB.Value+s.EngineWorkloadKiB.Value*s.workloads*s.spread/1024,
		fmt.Sprintf("%s MiB + %s KiB × %s workloads%s", number(s.EngineMiB.Value), number(s.EngineWorkloadKiB.Value), w, s.spreading()))

	return []Part{s.cellEtcd(changes), apiServer, engine}
}

func (s *sizing) cellEtcd(changes float64) Part {
	etcd := s.part(eachCell, "etcd", 3, "three, a majority of which survives one")
	s.cores(&etcd, changes*s.ChangeEtcdSeconds.Value*s.spread, fmt.Sprintf("%s changes a second × %g s%s", number(changes), s.ChangeEtcdSeconds.Value, s.spreading()))
	s.memory(&etcd, s.EtcdMiB.Value+s.EtcdWorkloadKiB.Value*s.workloads*s.spread/1024,
		fmt.Sprintf("%s MiB + %s KiB × %s workloads%s", number(s.EtcdMiB.Value), number(s.EtcdWorkloadKiB.Value), number(s.workloads), s.spreading()))
	s.storage(&etcd, (2*s.StoredWorkloadKiB.Value*s.workloads*s.spread+s.policies*s.PolicyKiB.Value)/1024,
		fmt.Sprintf("2 × %g KiB × %s workloads%s, for its own and for backups of others, + %s policies × %s KiB", s.StoredWorkloadKiB.Value, number(s.workloads), s.spreading(),
			number(s.policies), number(s.PolicyKiB.Value)))
	return etcd
}

func (s *sizing) hubParts() []Part {
	stored := (s.policies*s.PolicyKiB.Value + float64(s.in.Clusters)*s.LedgerKiB.Value) / 1024 // MiB
	storing := fmt.Sprintf("%s policies × %s KiB + %s clusters × %s KiB", number(s.policies), number(s.PolicyKiB.Value), number(float64(s.in.Clusters)), number(s.LedgerKiB.Value))

	etcd := s.part(hub, "etcd", 3, "three, a majority of which survives one")
	s.cores(&etcd, 0, "little is written")
	s.memory(&etcd, s.EtcdMiB.Value+stored*s.EtcdWorkloadKiB.Value/s.StoredWorkloadKiB.Value, fmt.Sprintf("%s MiB + (%s) × %.1f, as in a cell", number(s.EtcdMiB.Value), storing, s.EtcdWorkloadKiB.Value/s.StoredWorkloadKiB.Value))
	s.storage(&etcd, stored, storing)

	apiServer := s.part(hub, "kube-apiserver", 2, "two, because one must be enough")
	s.cores(&apiServer, 0, "little is written")
	s.memory(&apiServer, s.APIServerMiB.Value+stored*s.cacheFactor(), fmt.Sprintf("%s MiB + (%s) × %s in caches", number(s.APIServerMiB.Value), storing, number(s.cacheFactor())))

	manager := s.part(hub, "hub-manager", 2, "two, of which one stands by")
	writes := s.changes * s.ChangeWrites.Value
	s.cores(&manager, writes*s.BackupSeconds.Value, fmt.Sprintf("backup of %s changes a second × %g writes × %g s", number(s.changes), s.ChangeWrites.Value, s.BackupSeconds.Value))
	objects := float64(s.in.Nodes) + float64(s.in.Pods)
	s.memory(&manager, s.HubManagerMiB.Value+objects*s.SchedulingNodeBytes.Value/(1<<20),
		fmt.Sprintf("%s MiB + %s B × %s nodes and pods, for free capacity", number(s.HubManagerMiB.Value), number(s.SchedulingNodeBytes.Value), number(objects)))

	engine := s.part(hub, "engine", 2, "two, of which one stands by")
	s.cores(&engine, 0, "propagates only what is on the hub")
	s.memory(&engine, s.EngineMiB.Value+s.policies*s.EngineWorkloadKiB.Value/1024, fmt.Sprintf("%s MiB + %s KiB × %s policies, counted as workloads", number(s.EngineMiB.Value), number(s.EngineWorkloadKiB.Value), number(s.policies)))

	controllers := s.part(hub, "kube-controller-manager", 2, "two, of which one stands by")
	s.cores(&controllers, 0, "little is written")
	s.memory(&controllers, s.ControllerManagerMiB.Value+s.policies*s.EngineWorkloadKiB.Value/1024, fmt.Sprintf("%s MiB + %s KiB × %s policies, as an engine", number(s.ControllerManagerMiB.Value), number(s.EngineWorkloadKiB.Value), number(s.policies)))
	return []Part{etcd, apiServer, controllers, manager, engine}
}

func (s *sizing) gateway() Part {
	perSecond := float64(s.in.RequestsPerSecond) + s.changes
	cores := perSecond * s.RequestGatewaySeconds.Value * s.CPUHeadroom.Value
	replicas := max(3, int(math.Ceil(cores/s.CoresPerGateway.Value))+1)
	gateway := s.part(federation, "gateway", replicas, fmt.Sprintf("%.1f cores by at most %s each, and one more; at least three, a majority of which must agree to a failover", cores, number(s.CoresPerGateway.Value)))
	s.cores(&gateway, perSecond*s.RequestGatewaySeconds.Value/float64(replicas-1), fmt.Sprintf("%s requests a second × %g s, by all replicas but one", number(perSecond), s.RequestGatewaySeconds.Value))
	s.memory(&gateway, s.GatewayMiB.Value+s.MemoryBudgetMiB.Value, fmt.Sprintf("%s MiB + --memory-budget of %s MiB", number(s.GatewayMiB.Value), number(s.MemoryBudgetMiB.Value)))
	return gateway
}

func (s *sizing) clusterGateway() Part {
	part := s.part(federation, "cluster-gateway", 2, "two, because one must be enough; each has all pods")
	start := float64(s.in.Pods) / s.PodsIngestedPerSecond.Value / s.ColdStartSeconds.Value
	replaced := s.changes * float64(s.in.Pods) / float64(s.in.Services)
	updates := replaced * s.UpdatesPerPod.Value
	steady := updates / s.PodUpdatesPerSecond.Value
	if start > steady {
		s.cores(&part, start, fmt.Sprintf("%s pods / %s a second and core in %s s, to start; then changes need %s", number(float64(s.in.Pods)), number(s.PodsIngestedPerSecond.Value), number(s.ColdStartSeconds.Value), number(steady)))
	} else {
		s.cores(&part, steady, fmt.Sprintf("%s pods replaced a second × %s updates / %s a second and core", number(replaced), number(s.UpdatesPerPod.Value), number(s.PodUpdatesPerSecond.Value)))
	}
	objects := float64(s.in.Pods) + s.NodePods.Value*float64(s.in.Nodes)
	s.memory(&part, s.ClusterGatewayMiB.Value+s.MemoryBudgetMiB.Value+objects*s.PodBytes.Value/(1<<20),
		fmt.Sprintf("%s MiB + --memory-budget of %s MiB + %s B × (%s pods + %s × %s nodes)", number(s.ClusterGatewayMiB.Value), number(s.MemoryBudgetMiB.Value), number(s.PodBytes.Value),
			number(float64(s.in.Pods)), number(s.NodePods.Value), number(float64(s.in.Nodes))))
	return part
}

func (s *sizing) controllerManager() Part {
	part := s.part(federation, "kube-controller-manager", 2, "two, of which one stands by")
	s.cores(&part, 0, "namespaces, garbage collection and quotas of templates only")
	templates := float64(s.in.Services) * float64(s.in.TemplatesPerService)
	s.memory(&part, s.ControllerManagerMiB.Value+templates*s.EngineWorkloadKiB.Value*s.spread/1024,
		fmt.Sprintf("%s MiB + %s KiB × %s templates%s, as an engine", number(s.ControllerManagerMiB.Value), number(s.EngineWorkloadKiB.Value), number(templates), s.spreading()))
	return part
}

func (s *sizing) part(where, name string, replicas int, why string) Part {
	times := 1
	if where == eachCell {
		times = s.cells
	}
	return Part{Where: where, Name: name, Times: times, Replicas: replicas, Reasons: []string{"replicas: " + why}}
}

// cores sets the cores of each replica, in halves.
func (s *sizing) cores(p *Part, cores float64, why string) {
	p.Cores = max(s.MinimumCores.Value, math.Ceil(2*cores*s.CPUHeadroom.Value)/2)
	if cores*s.CPUHeadroom.Value <= s.MinimumCores.Value {
		why = fmt.Sprintf("at least %g; %s", s.MinimumCores.Value, why)
	}
	p.Reasons = append(p.Reasons, "cores: "+why+s.times(s.CPUHeadroom))
}

// memory sets the memory of each replica, in quarters of a GiB.
func (s *sizing) memory(p *Part, mebibytes float64, why string) {
	p.MemoryMiB = 256 * int(math.Ceil(mebibytes*s.MemoryHeadroom.Value/256))
	p.Reasons = append(p.Reasons, "memory: "+why+s.times(s.MemoryHeadroom))
}

// storage sets the storage of each replica, in GiB.
func (s *sizing) storage(p *Part, mebibytes float64, why string) {
	p.StorageGiB = int(math.Ceil(mebibytes * s.StorageHeadroom.Value / 1024))
	p.Reasons = append(p.Reasons, "storage: "+why+s.times(s.StorageHeadroom))
}

func (s *sizing) times(headroom Figure) string {
	return fmt.Sprintf("; × %g headroom", headroom.Value)
}

// cacheFactor is the memory of an API server relative to what it has stored.
func (s *sizing) cacheFactor() float64 {
	return s.APIServerWorkloadKiB.Value / s.StoredWorkloadKiB.Value
}

// spreading is the factor for workloads in more clusters than were measured.
func (s *sizing) spreading() string {
	if s.spread == 1 {
		return ""
	}
	return fmt.Sprintf(" × %s, for %d clusters instead of %s", number(s.spread), s.in.ClustersPerService, number(s.MeasuredClusters.Value))
}

func (s *sizing) notes(templates float64) []string {
	lost := math.Ceil(templates * float64(s.in.ClustersPerService) / float64(s.in.Clusters))
	seconds := math.Ceil(lost / float64(s.cells) / s.PlacedPerSecond.Value)
	notes := []string{
		fmt.Sprintf("After the loss of a cluster, %s templates are placed elsewhere: %d cells at %s a second each need about %s s.", number(lost), s.cells, number(s.PlacedPerSecond.Value), number(seconds)),
		"The control planes of the clusters themselves are not included.",
	}
	for _, limit := range []struct {
		what     string
		value    int
		measured Figure
	}{{"pods", s.in.Pods, s.MeasuredPods}, {"nodes", s.in.Nodes, s.MeasuredNodes}, {"clusters", s.in.Clusters, s.MeasuredFederationClusters}} {
		if float64(limit.value) > limit.measured.Value {
			notes = append(notes, fmt.Sprintf("%s %s are more than the %s that were measured: the figures are extrapolated.", number(float64(limit.value)), limit.what, number(limit.measured.Value)))
		}
	}
	return notes
}

// number formats a number with spaces between thousands, small ones with two digits.
func number(value float64) string {
	if value != math.Trunc(value) && value < 100 {
		return strconv.FormatFloat(value, 'g', 2, 64)
	}
	digits := strconv.FormatFloat(math.Round(value), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}
