package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// WriteDrain is how long an API server that already refuses a kind of write may still be storing an earlier one. A response that
	// takes longer than this has to be confirmed.
	WriteDrain = 250 * time.Millisecond
	// Closed is an epoch that no gateway ever has. A cell with this floor accepts nothing from gateways.
	Closed int64 = math.MaxInt64

	probeInterval = 20 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

// ConfirmPath and ConfirmBody are a POST in JSON that changes nothing and is refused exactly if a write with the same epoch would be. An
// access review would not do: admission policies do not apply to it.
const (
	ConfirmPath = "/api/v1/namespaces/" + metav1.NamespaceDefault + "/configmaps?dryRun=All"
	ConfirmBody = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"cellplane-fence-"}}`
)

// Install installs or repairs the fence of a cell. The client has to be the hub manager's. A new floor is 0, which refuses nothing.
func Install(ctx context.Context, cell kubernetes.Interface) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: leaseName, Annotations: map[string]string{floorAnnotation: "0"}}}
	// The policies need the floor, so it comes first.
	if _, err := cell.CoordinationV1().Leases(leaseNamespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("installing the fence: %w", err)
	}
	installed, err := installedPolicies(ctx, cell)
	if err != nil {
		return fmt.Errorf("reading the fence's policies: %w", err)
	}
	options := metav1.ApplyOptions{FieldManager: "cellplane", Force: true}
	complete := true
	for _, p := range policies() {
		if _, err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicies().Apply(ctx, p.apply(), options); err != nil {
			return fmt.Errorf("installing the fence's policy %s: %w", p.name, err)
		}
		if _, err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Apply(ctx, p.bind(), options); err != nil {
			return fmt.Errorf("installing the fence's policy %s: %w", p.name, err)
		}
		complete = complete && installed.Has(p.name)
	}
	if !complete {
		return nil // API servers need not know the new policies yet: those of an earlier version stay until the hub manager's next start
	}
	return removePolicies(ctx, cell, installed.Intersection(sets.New(obsolete...)))
}

// installedPolicies returns the names of the cell's policies that are bound.
func installedPolicies(ctx context.Context, cell kubernetes.Interface) (sets.Set[string], error) {
	bindings, err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	bound := sets.New[string]()
	for i := range bindings.Items {
		bound.Insert(bindings.Items[i].Name)
	}
	return bound, nil
}

// removePolicies removes policies, each before its binding, so that what is left of one that is interrupted is found again.
func removePolicies(ctx context.Context, cell kubernetes.Interface, policies sets.Set[string]) error {
	for name := range policies {
		if err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing the fence's former policy %s: %w", name, err)
		}
		if err := cell.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing the binding of the fence's former policy %s: %w", name, err)
		}
	}
	return nil
}

// Cell is the fence of one cell.
type Cell struct {
	name     string
	endpoint fleet.Endpoint
	client   kubernetes.Interface
}

// Connect prepares to read and raise the fence of a cell.
func Connect(name string, endpoint fleet.Endpoint) (*Cell, error) {
	c := &Cell{name: name, endpoint: endpoint}
	if endpoint.ServerName == "" { // all API servers of the cell have the same name in their certificates
		server, err := url.Parse(endpoint.Server)
		if err != nil {
			return nil, fmt.Errorf("reading the address of cell %s: %w", name, err)
		}
		c.endpoint.ServerName = server.Hostname()
	}
	var err error
	if c.client, err = c.as(endpoint.Server, Mover, user.SystemPrivilegedGroup, nil); err != nil {
		return nil, fmt.Errorf("preparing to reach cell %s: %w", name, err)
	}
	return c, nil
}

// as returns a client for one API server of the cell.
func (c *Cell) as(server, user, group string, extra map[string][]string) (kubernetes.Interface, error) {
	endpoint := c.endpoint
	endpoint.Server = server
	config := endpoint.Config(user, []string{group}, extra)
	config.Timeout = probeTimeout
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

// Raise makes every API server of the cell refuse all epochs before the given one. It returns after each of them has been seen to refuse,
// and no write that was accepted before can still be stored. It never lowers the floor.
func (c *Cell) Raise(ctx context.Context, epoch int64) error {
	floor, err := c.setFloor(ctx, raisedTo(epoch))
	if err != nil {
		return err
	}
	return c.await(ctx, floor)
}

// RaiseFloor raises the floor without waiting for the API servers to apply it. A read of the floor shows it at once.
func (c *Cell) RaiseFloor(ctx context.Context, epoch int64) error {
	_, err := c.setFloor(ctx, raisedTo(epoch))
	return err
}

func raisedTo(epoch int64) func(*coordinationv1.Lease) (int64, error) {
	return func(lease *coordinationv1.Lease) (int64, error) { return max(floorOf(lease), epoch), nil }
}

// ErrDeposed means that a leader of a later term has closed or reopened the cell.
var ErrDeposed = errors.New("a later leader has closed or reopened the cell")

// Close has the cell refuse everything from gateways, and waits like Raise. It is an error if the leader is late, and a later one has decided
// about the cell: it may have returned.
func (c *Cell) Close(ctx context.Context, term cellstore.Term) error {
	floor, err := c.setFloor(ctx, decidedIn(term, Closed))
	if err != nil {
		return err
	}
	return c.await(ctx, floor)
}

// Reopen sets the floor of a cell that was closed, unless a later leader has decided about it. The cell must not hold stale objects: gateways would
// serve them.
func (c *Cell) Reopen(ctx context.Context, epoch int64, term cellstore.Term) error {
	_, err := c.setFloor(ctx, decidedIn(term, epoch))
	return err
}

// decidedIn chooses a floor and records the term, if there is no later one.
func decidedIn(term cellstore.Term, floor int64) func(*coordinationv1.Lease) (int64, error) {
	return func(lease *coordinationv1.Lease) (int64, error) {
		if last, err := strconv.ParseInt(lease.Annotations[termAnnotation], 10, 64); err == nil && cellstore.Term(last) > term {
			return 0, ErrDeposed
		}
		lease.Annotations[termAnnotation] = term.String()
		return floor, nil
	}
}

// await waits until every API server refuses what comes before the floor.
func (c *Cell) await(ctx context.Context, floor int64) error {
	if err := c.probe(ctx, floor); err != nil {
		return err
	}
	return sleep(ctx, WriteDrain)
}

// setFloor sets the floor that is chosen for the fence as it is stored.
func (c *Cell) setFloor(ctx context.Context, choose func(*coordinationv1.Lease) (int64, error)) (floor int64, err error) {
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
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		before := maps.Clone(lease.Annotations)
		if floor, err = choose(lease); err != nil {
			return err
		}
		if lease.Annotations[floorAnnotation] = strconv.FormatInt(floor, 10); maps.Equal(before, lease.Annotations) {
			return nil
		}
		_, err = c.client.CoordinationV1().Leases(leaseNamespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raising the fence of cell %s: %w", c.name, err)
	}
	return floor, nil
}

// probe is a request that changes nothing, and the refusal that every API server has to answer.
type probe struct {
	epoch   int64
	extra   map[string][]string
	labels  map[string]string
	asks    map[string]string // annotations
	floor   bool              // to change the floor
	refusal string
}

// probes returns a probe for each policy. The one for the floor is last.
func probes(epoch int64) []probe {
	return []probe{
		{epoch: epoch, extra: map[string][]string{names.ExistingExtra: {"true"}}, refusal: Absent},
		{epoch: epoch, labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}, refusal: Reserved},
		{epoch: epoch, floor: true, refusal: Reserved},
		{epoch: epoch, asks: map[string]string{names.DurabilityAnnotation: names.DurabilityReplicated}, refusal: Durable},
		{epoch: epoch - 1, refusal: StaleEpoch},
	}
}

// probe waits until every API server refuses every probe.
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
					return fmt.Errorf("waiting for API server %s of cell %s to refuse a request with %q: %w", server, c.name, p.refusal, err)
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
		err := p.send(ctx, client)
		switch {
		case Refusal(err) == p.refusal:
			return nil
		case err == nil:
			err = errors.New("the request was accepted")
		}
		if ended := sleep(ctx, probeInterval); ended != nil {
			return fmt.Errorf("%w (last attempt: %w)", ended, err)
		}
	}
}

func (p probe) send(ctx context.Context, client kubernetes.Interface) error {
	dryRun := []string{metav1.DryRunAll}
	if p.floor {
		_, err := client.CoordinationV1().Leases(leaseNamespace).Patch(ctx, leaseName, types.MergePatchType, []byte("{}"), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "cellplane-fence-", Labels: p.labels, Annotations: p.asks}}
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// servers returns the addresses of the cell's API servers. It fails while fewer are known than the Cell declares: one that is paused is no
// longer published, and would go on by an old floor when it wakes.
func (c *Cell) servers(ctx context.Context) ([]string, error) {
	// API servers maintain this EndpointSlice themselves.
	slice, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("finding the API servers of cell %s: %w", c.name, err)
	}
	var servers []string
	if err == nil {
		servers = published(slice)
	}
	if len(servers) == 0 {
		servers = []string{c.endpoint.Server}
	}
	if declared := c.endpoint.APIServers; len(servers) < declared {
		return nil, fmt.Errorf("cell %s declares %d API servers and %d are known; start the others, or lower spec.endpoint.apiServers of the Cell if they are gone for good", c.name, declared, len(servers))
	}
	return servers, nil
}

// published returns the addresses in the EndpointSlice of API servers.
func published(slice *discoveryv1.EndpointSlice) []string {
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
	return servers
}

// Refusal returns which of the fence's refusals an error of an API server is, or "".
func Refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return RefusalIn(status.Status())
}

// RefusalIn is Refusal for the status in a response.
func RefusalIn(status metav1.Status) string {
	if status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, "ValidatingAdmissionPolicy 'cellplane-") {
		return ""
	}
	_, message, _ := strings.Cut(status.Message, "denied request: ")
	for _, refusal := range []string{StaleEpoch, Absent, Frozen, Reserved, Durable} {
		if strings.HasPrefix(message, refusal) {
			return refusal
		}
	}
	return ""
}

// DurabilityIn returns the durability that an object asks for whose write was refused for that reason, or "".
func DurabilityIn(status metav1.Status) string {
	if RefusalIn(status) != Durable {
		return ""
	}
	_, value, _ := strings.Cut(status.Message, Durable)
	return value
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
