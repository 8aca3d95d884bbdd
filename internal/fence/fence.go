package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/retry"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// Settle is how long a write may still be on its way through an API server that already refuses its like. Who gets an answer
	// later than this after asking has to confirm it.
	Settle = 250 * time.Millisecond
	// Closed is an epoch that nobody ever has. A cell whose floor it is accepts nothing from gateways.
	Closed int64 = math.MaxInt64

	probeInterval = 20 * time.Millisecond
	probeWithin   = 5 * time.Second
)

// ConfirmPath and ConfirmBody are a POST in JSON that changes nothing and is refused exactly if a write with the same epoch would be. Reviews of access
// would not do: policies are never asked about them.
const (
	ConfirmPath = "/api/v1/namespaces/" + metav1.NamespaceDefault + "/configmaps?dryRun=All"
	ConfirmBody = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"cellplane-fence-"}}`
)

// Install makes a cell have the fence, or repairs it. The configuration is the hub manager's. Where there is no floor yet it is 0, which
// refuses nobody.
func Install(ctx context.Context, cell kubernetes.Interface) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: leaseName, Annotations: map[string]string{floorAnnotation: "0"}}}
	// The floor is there before any policy asks for it.
	if _, err := cell.CoordinationV1().Leases(leaseNamespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("installing the fence: %w", err)
	}
	options := metav1.ApplyOptions{FieldManager: "cellplane", Force: true}
	for _, p := range policies() {
		if _, err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicies().Apply(ctx, p.apply(), options); err != nil {
			return fmt.Errorf("installing the fence's policy %s: %w", p.name, err)
		}
		if _, err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Apply(ctx, p.bind(), options); err != nil {
			return fmt.Errorf("installing the fence's policy %s: %w", p.name, err)
		}
	}
	return nil
}

// Cell is a cell whose fence is raised.
type Cell struct {
	name   string
	server string
	tls    rest.TLSClientConfig
	client kubernetes.Interface
}

// Connect prepares to raise the fence of a cell with the credentials that its Secret on the hub holds.
func Connect(cell *cellplanev1alpha1.Cell, credentials *corev1.Secret) (*Cell, error) {
	c := &Cell{name: cell.Name, server: cell.Spec.Endpoint.Server, tls: rest.TLSClientConfig{
		CAData: cell.Spec.Endpoint.CABundle, ServerName: cell.Spec.Endpoint.ServerName,
		CertData: credentials.Data[corev1.TLSCertKey], KeyData: credentials.Data[corev1.TLSPrivateKeyKey],
	}}
	if c.tls.ServerName == "" { // the same whichever of its API servers is asked
		server, err := url.Parse(c.server)
		if err != nil {
			return nil, fmt.Errorf("reading the address of cell %s: %w", c.name, err)
		}
		c.tls.ServerName = server.Hostname()
	}
	var err error
	if c.client, err = c.as(c.server, Mover, "system:masters", nil); err != nil {
		return nil, fmt.Errorf("preparing to reach cell %s: %w", cell.Name, err)
	}
	return c, nil
}

// as returns a client for an API server of the cell.
func (c *Cell) as(server, user, group string, extra map[string][]string) (kubernetes.Interface, error) {
	config := &rest.Config{Host: server, TLSClientConfig: c.tls, Timeout: probeWithin, QPS: -1}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(user, "", []string{group}, extra, next)
	})
	return kubernetes.NewForConfig(config)
}

// Floor returns the lowest epoch that the cell accepts.
func (c *Cell) Floor(ctx context.Context) (int64, error) {
	lease, err := c.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("reading the fence of cell %s: %w", c.name, err)
	}
	return floorOf(lease), nil
}

func floorOf(lease *coordinationv1.Lease) int64 {
	floor, err := strconv.ParseInt(lease.Annotations[floorAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return floor
}

// Raise makes every API server of the cell refuse all epochs before the given one. It returns when each has been seen to, and nothing
// that was on its way can be stored any more. A higher floor stays.
func (c *Cell) Raise(ctx context.Context, epoch int64) error {
	floor, err := c.setFloor(ctx, func(floor int64) int64 { return max(floor, epoch) })
	if err != nil {
		return err
	}
	if err := c.probe(ctx, floor); err != nil {
		return err
	}
	return sleep(ctx, Settle)
}

// Reopen sets the floor of a cell that was closed. Nothing may be in it that gateways could take for current.
func (c *Cell) Reopen(ctx context.Context, epoch int64) error {
	_, err := c.setFloor(ctx, func(int64) int64 { return epoch })
	return err
}

func (c *Cell) setFloor(ctx context.Context, choose func(int64) int64) (floor int64, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := c.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if err := Install(ctx, c.client); err != nil {
				return err
			}
			lease, err = c.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		floor = choose(floorOf(lease))
		if floor == floorOf(lease) {
			return nil
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[floorAnnotation] = strconv.FormatInt(floor, 10)
		_, err = c.client.CoordinationV1().Leases(leaseNamespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raising the fence of cell %s: %w", c.name, err)
	}
	return floor, nil
}

// probe is a request that changes nothing, and how every API server has to refuse it.
type probe struct {
	epoch   int64
	extra   map[string][]string
	labels  map[string]string
	refusal string
}

// probes tell that each policy works, the one with the floor last.
func probes(epoch int64) []probe {
	return []probe{
		{epoch: epoch, extra: map[string][]string{names.ExistingExtra: {"true"}}, refusal: Absent},
		{epoch: epoch, labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}, refusal: Reserved},
		{epoch: epoch - 1, refusal: StaleEpoch},
	}
}

// probe asks all API servers until each refuses what it has to.
func (c *Cell) probe(ctx context.Context, epoch int64) error {
	servers, err := c.servers(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range servers {
		group.Go(func() error {
			for _, p := range probes(epoch) {
				if err := c.ask(ctx, server, p); err != nil {
					return fmt.Errorf("waiting for the API server %s of cell %s to refuse what is %q: %w", server, c.name, p.refusal, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// ask repeats a probe until it is refused.
func (c *Cell) ask(ctx context.Context, server string, p probe) error {
	extra := map[string][]string{names.EpochExtra: {strconv.FormatInt(p.epoch, 10)}}
	maps.Copy(extra, p.extra)
	client, err := c.as(server, "system:cellplane:fence", fleet.AuthorizedGroup, extra)
	if err != nil {
		return err
	}
	for {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "cellplane-fence-", Labels: p.labels}}
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case Refusal(err) == p.refusal:
			return nil
		case err == nil:
			err = errors.New("it was accepted")
		}
		if ended := sleep(ctx, probeInterval); ended != nil {
			return fmt.Errorf("%w (last: %w)", ended, err)
		}
	}
}

// servers returns the addresses of the cell's API servers, one by one if they have made themselves known.
func (c *Cell) servers(ctx context.Context) ([]string, error) {
	// API servers keep this one by themselves, under this name.
	slice, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []string{c.server}, nil
	case err != nil:
		return nil, fmt.Errorf("finding the API servers of cell %s: %w", c.name, err)
	}
	var servers []string
	for _, port := range slice.Ports {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				if port.Port != nil {
					servers = append(servers, "https://"+net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	if len(servers) == 0 {
		servers = []string{c.server}
	}
	return servers, nil
}

// Refusal returns which of the fence's constants an error of an API server is about, "" if none.
func Refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return RefusalIn(status.Status())
}

// RefusalIn is Refusal for the status in an answer.
func RefusalIn(status metav1.Status) string {
	if status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, "ValidatingAdmissionPolicy 'cellplane-") {
		return ""
	}
	_, said, _ := strings.Cut(status.Message, "denied request: ")
	for _, refusal := range []string{StaleEpoch, Absent, Frozen, Reserved} {
		if strings.HasPrefix(said, refusal) {
			return refusal
		}
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
