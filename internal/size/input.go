package size

import "fmt"

// Input is what a federation has to carry.
type Input struct {
	Nodes         int `json:"nodes"`
	Services      int `json:"services"`
	Pods          int `json:"pods"`
	Clusters      int `json:"clusters"`
	ChangesPerDay int `json:"changesPerDay"`
	// TemplatesPerService are the objects of a service that policies propagate.
	TemplatesPerService int `json:"templatesPerService"`
	// ClustersPerService are the clusters to which each of them goes.
	ClustersPerService int `json:"clustersPerService"`
	// RequestsPerSecond are the requests of clients at the peak, besides changes; 0 for a share of the services.
	RequestsPerSecond int `json:"requestsPerSecond"`
}

// Defaults are the values of flags that are not given.
var Defaults = Input{TemplatesPerService: 2, ClustersPerService: 3}

// maximum keeps products within the range of numbers.
const maximum = 1_000_000_000

// Validate returns an error about the first value that makes no sense.
func (in *Input) Validate() error {
	for _, v := range []struct {
		flag       string
		value, min int
	}{
		{"nodes", in.Nodes, 1},
		{"services", in.Services, 1},
		{"pods", in.Pods, 1},
		{"clusters", in.Clusters, 1},
		{"changes-per-day", in.ChangesPerDay, 0},
		{"templates-per-service", in.TemplatesPerService, 1},
		{"clusters-per-service", in.ClustersPerService, 1},
		{"requests-per-second", in.RequestsPerSecond, 0},
	} {
		if v.value < v.min || v.value > maximum {
			return fmt.Errorf("--%s must be between %d and %d, not %d", v.flag, v.min, maximum, v.value)
		}
	}
	if in.ClustersPerService > in.Clusters {
		return fmt.Errorf("--clusters-per-service is %d, but there are only %d clusters", in.ClustersPerService, in.Clusters)
	}
	if in.Nodes < in.Clusters {
		return fmt.Errorf("--nodes is %d, but each of the %d clusters needs a node", in.Nodes, in.Clusters)
	}
	return nil
}
