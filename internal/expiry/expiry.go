// Package expiry tells, as a metric, when the certificates that a part uses end. A part names them when it starts:
//
//	expiry.Track(expiry.File("serving", file), expiry.Kubeconfig("hub", kubeconfig, context))
//
// Those that it gets while it runs, such as those for cells, are asked for with Follow.
//
// The files are read whenever metrics are collected, so that a renewal shows at once. Hub managers and agents serve the registry of controller-runtime,
// where the metric is registered already; other parts register Collector in theirs.
package expiry

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Certificate is a certificate, or a chain of them. The zero value is none, as are those of functions below without a file.
type Certificate struct {
	// Purpose says what it is for, File where it is from. Together they are unique in a process.
	Purpose, File string
	// Expires returns when it ends.
	Expires func() (time.Time, error)
}

// File is a certificate, or a chain, in a PEM file. It ends with the first of the chain.
func File(purpose, file string) Certificate { return inFile(purpose, file, First) }

// Authorities are the authorities in a PEM file. They end with the last one: a bundle may hold former ones.
func Authorities(purpose, file string) Certificate { return inFile(purpose, file, Last) }

func inFile(purpose, file string, end func(data []byte) (time.Time, error)) Certificate {
	if file == "" {
		return Certificate{}
	}
	return Certificate{Purpose: purpose, File: file, Expires: func() (time.Time, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return time.Time{}, err
		}
		return end(data)
	}}
}

// Kubeconfig is the client certificate in a kubeconfig. It ends never if there is none: other credentials are renewed by those who issue them.
func Kubeconfig(purpose, file, context string) Certificate {
	if file == "" {
		return Certificate{}
	}
	return Certificate{Purpose: purpose, File: file, Expires: func() (time.Time, error) {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
		if err != nil {
			return time.Time{}, err
		}
		data := config.CertData
		if len(data) == 0 && config.CertFile != "" {
			if data, err = os.ReadFile(config.CertFile); err != nil {
				return time.Time{}, err
			}
		}
		if len(data) == 0 {
			return Never, nil
		}
		return First(data)
	}}
}

// Chain is a certificate, or a chain, that is in memory. It ends with the first of the chain. from says where it is from.
func Chain(purpose, from string, chain []byte) Certificate {
	return Certificate{Purpose: purpose, File: from, Expires: func() (time.Time, error) { return First(chain) }}
}

// Never is when something ends that is no certificate.
var Never = time.Unix(1<<62, 0)

// First returns when the first certificate of a PEM chain ends.
func First(chain []byte) (time.Time, error) {
	ends, err := ends(chain)
	if err != nil {
		return time.Time{}, err
	}
	return slices.MinFunc(ends, time.Time.Compare), nil
}

// Last returns when the last certificate of a PEM bundle ends.
func Last(bundle []byte) (time.Time, error) {
	ends, err := ends(bundle)
	if err != nil {
		return time.Time{}, err
	}
	return slices.MaxFunc(ends, time.Time.Compare), nil
}

func ends(data []byte) ([]time.Time, error) {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	var all []time.Time
	for _, c := range certificates {
		all = append(all, c.NotAfter)
	}
	return all, nil
}

var (
	mu       sync.Mutex
	tracked  = map[[2]string]Certificate{}
	followed = map[*func() []Certificate]bool{}
)

// Track adds certificates to the metric.
func Track(certificates ...Certificate) {
	mu.Lock()
	defer mu.Unlock()
	for _, c := range certificates {
		if c.Expires != nil {
			tracked[[2]string{c.Purpose, c.File}] = c
		}
	}
}

// Follow adds the certificates that list returns, which is asked whenever metrics are collected, until stop is called.
func Follow(list func() []Certificate) (stop func()) {
	mu.Lock()
	defer mu.Unlock()
	followed[&list] = true
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(followed, &list)
	}
}

// Collector returns the metric of what is tracked.
func Collector() prometheus.Collector { return collector{} }

func init() { metrics.Registry.MustRegister(collector{}) }

var expiration = prometheus.NewDesc("cellplane_certificate_expiration_timestamp_seconds",
	"When a certificate that this part uses ends, in seconds since 1970, by purpose and file; 0 if it cannot be read.", []string{"purpose", "file"}, nil)

type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) { out <- expiration }

// Collect implements prometheus.Collector.
func (collector) Collect(out chan<- prometheus.Metric) {
	for _, c := range all() {
		ends, err := c.Expires()
		if err == nil && ends.Equal(Never) {
			continue
		}
		value := 0.0
		if err == nil {
			value = float64(ends.Unix())
		}
		out <- prometheus.MustNewConstMetric(expiration, prometheus.GaugeValue, value, c.Purpose, c.File)
	}
}

// all returns each certificate once: several gateways in one process have the same for a cell.
func all() []Certificate {
	mu.Lock()
	found, lists := maps.Clone(tracked), slices.Collect(maps.Keys(followed))
	mu.Unlock()
	for _, list := range lists {
		for _, c := range (*list)() {
			found[[2]string{c.Purpose, c.File}] = c
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Certificate) int {
		return cmp.Or(cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.File, b.File))
	})
}
