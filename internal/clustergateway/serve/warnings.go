package serve

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/net"

	"github.com/cellplane/cellplane/internal/clustercache"
)

// maxNamed is the largest number of clusters in a warning.
const maxNamed = 5

// warner writes Warning headers, which kubectl and client-go show to users.
type warner struct{ header http.Header }

func (w warner) add(text string) {
	// A warning that cannot be encoded is dropped.
	if header, err := net.NewWarningHeader(299, "-", text); err == nil {
		w.header.Add("Warning", header)
	}
}

// stale warns of members that cannot be watched.
func (w warner) stale(clusters []clustercache.ClusterState) {
	var lost []string
	for _, cluster := range clusters {
		if !cluster.Stale.IsZero() && (cluster.Objects > 0 || !cluster.Synced) {
			lost = append(lost, named(cluster.Name)+" since "+cluster.Stale.UTC().Format(time.RFC3339))
		}
	}
	if len(lost) > 0 {
		w.add("what is shown may be out of date, as these cannot be followed: " + some(lost))
	}
}

// shadowed warns of objects that are hidden by others of the same name.
func (w warner) shadowed(res *resource, clusters []clustercache.ClusterState) {
	var hidden []string
	for _, cluster := range clusters {
		if cluster.Shadowed > 0 && cluster.Name != "" {
			hidden = append(hidden, fmt.Sprintf("%d of %s", cluster.Shadowed, cluster.Name))
		}
	}
	if len(hidden) > 0 {
		w.add(fmt.Sprintf("%s of the same name in several clusters are shown once; not shown are %s, which clusters/NAME/proxy shows", res.Resource, some(hidden)))
	}
}

// object writes the warnings for one object.
func (w warner) object(res *resource, o clustercache.Object, clusters []clustercache.ClusterState) {
	if !o.Stale.IsZero() {
		w.add(fmt.Sprintf("%s cannot be followed since %s: what is shown may be out of date", named(o.Cluster), o.Stale.UTC().Format(time.RFC3339)))
	}
	var others []string
	for _, cluster := range clusters {
		if cluster.Shadowed == 0 || cluster.Name == o.Cluster || cluster.Name == "" {
			continue
		}
		if _, err := res.store.Get(cluster.Name, o.Namespace, o.Name); err == nil {
			others = append(others, cluster.Name)
		}
	}
	if len(others) > 0 {
		w.add(fmt.Sprintf("%s %q is also in %s, where clusters/NAME/proxy shows it", res.Resource, o.Name, some(others)))
	}
}

func named(cluster string) string {
	if cluster == "" {
		return "the federation's own objects"
	}
	return "cluster " + cluster
}

func some(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
}
