package writerlease

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
)

const (
	// reportInterval is how often the gateway reports.
	reportInterval = 5 * time.Second
	// reportLasts is how long the hub surely remembers a report.
	reportLasts = 30 * time.Minute
	// reportTimeout limits one request.
	reportTimeout = 5 * time.Second
)

// Reporter maintains the gateway's Lease on the hub: which cells it reaches, and how long its writer lease lasts.
type Reporter struct {
	Keeper *Keeper
	Hub    kubernetes.Interface
	// Name of the Lease.
	Name string
}

var unfit = regexp.MustCompile(`[^a-z0-9-]+`)

// NewName returns a name for the Lease of a gateway that starts on this machine.
func NewName() string {
	host, _ := os.Hostname() // the suffix alone suffices
	host = strings.Trim(unfit.ReplaceAllString(strings.ToLower(host), "-"), "-")
	if len(host) > 40 {
		host = host[:40]
	}
	return "gateway-" + strings.Trim(host+"-"+rand.String(8), "-")
}

// Run reports until the context ends, and then removes the Lease: a gateway that has stopped has no say.
func (r *Reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			level := 2
			if apierrors.IsForbidden(err) {
				level = 0 // without reports a cell that works may be failed over
			}
			klog.FromContext(ctx).V(level).Info("cannot report to the hub which cells are reached, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
			defer cancel()
			_ = r.Hub.CoordinationV1().Leases(names.SystemNamespace).Delete(ending, r.Name, metav1.DeleteOptions{}) // else it expires
			return
		case <-ticker.C:
		}
	}
}

func (r *Reporter) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	wanted := r.lease(time.Now())
	leases := r.Hub.CoordinationV1().Leases(names.SystemNamespace)
	began := r.Keeper.Now()
	known, err := leases.Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil:
		wanted.ResourceVersion = known.ResourceVersion
		_, err = leases.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the Lease %s/%s on the hub: %w", names.SystemNamespace, r.Name, err)
	}
	r.Keeper.mu.Lock()
	defer r.Keeper.mu.Unlock()
	r.Keeper.reported = &began
	return nil
}

// lease returns the report.
func (r *Reporter) lease(now time.Time) *coordinationv1.Lease {
	reached, unreached := r.Keeper.reached(2 * r.Keeper.Length)
	var without []string
	for cell, since := range unreached {
		without = append(without, cell+"="+since.UTC().Format(time.RFC3339))
	}
	epoch := int64(0)
	if view := r.Keeper.Views(); view != nil {
		epoch = view.Epoch()
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: names.SystemNamespace, Name: r.Name,
			Labels: map[string]string{names.GatewayLeaseLabel: ""},
			Annotations: map[string]string{
				names.WriterLeaseAnnotation:    r.Keeper.Length.String(),
				names.ReachedCellsAnnotation:   strings.Join(reached, ","),
				names.UnreachedCellsAnnotation: strings.Join(without, ","),
				names.EpochExtra:               fmt.Sprint(epoch),
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(r.Name),
			LeaseDurationSeconds: ptr.To(int32(max(reportInterval*3, r.Keeper.Length) / time.Second)),
			RenewTime:            ptr.To(metav1.NewMicroTime(now)),
		},
	}
}
