package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	namespace    = "bench"
	newCell      = "cell-d"
	startTimeout = 10 * time.Minute
)

// world is a federation of three cells without members, and its clients.
type world struct {
	settings
	dir        string
	federation *local.Federation
	gateway    kubernetes.Interface
	hub        client.Client
}

func start(ctx context.Context, s settings) (_ *world, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if s.program, err = filepath.Abs(s.program); err != nil {
		return nil, err
	}
	binaries, err := kubebin.Ensure(ctx, func(what string, _ int) { fmt.Println("building", what) })
	if err != nil {
		return nil, err
	}
	w := &world{settings: s}
	if w.dir, err = os.MkdirTemp("", "cellplane-benchcells-"); err != nil {
		return nil, err
	}
	prepare := parts.Of(s.program)
	var running local.Parts
	w.federation, err = local.Open(filepath.Join(w.dir, "federation"), local.Spec{Cells: 3}, local.Options{
		Binaries: binaries,
		Parts: func(f *local.Federation) (local.Parts, error) {
			running, err = prepare(f)
			return running, err
		},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.dir))
	}
	if err := w.connect(ctx, running); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

func (w *world) connect(ctx context.Context, running local.Parts) error {
	if err := w.federation.Start(ctx, func(string) {}); err != nil {
		return err
	}
	config := running.Contexts()[parts.GatewayContext]
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	var err error
	if w.gateway, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	hub, err := w.federation.Hub.AdminConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return err
	}
	w.hub, err = client.New(hub, client.Options{Scheme: scheme})
	return err
}

func (w *world) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := w.federation.Stop(ctx)
	w.federation.Close()
	return errors.Join(err, os.RemoveAll(w.dir))
}

func nameOf(i int) string { return fmt.Sprintf("object-%05d", i) }

// populate creates the objects through the gateway.
func (w *world) populate(ctx context.Context) error {
	if _, err := w.gateway.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	began := time.Now()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range w.workers {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= w.objects {
					return nil
				}
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: nameOf(i), Labels: map[string]string{"app": "bench"}}, Data: map[string]string{"text": strings.Repeat("x", 1000)}}
				if _, err := w.gateway.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d objects created through the gateway, %.0f/s\n\n", w.objects, float64(w.objects)/time.Since(began).Seconds())
	return nil
}

func (w *world) topology(ctx context.Context) (*v1alpha1.CellTopology, error) {
	topology := &v1alpha1.CellTopology{}
	return topology, w.hub.Get(ctx, types.NamespacedName{Name: v1alpha1.CellTopologyName}, topology)
}

// change edits the topology and returns the slots that move.
func (w *world) change(ctx context.Context, edit cells.Edit) (moving map[slots.Slot]bool, err error) {
	topology, err := w.topology(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := cells.Preview(topology.Spec, edit)
	if err != nil {
		return nil, err
	}
	moving = map[slots.Slot]bool{}
	for _, flow := range plan.Flows {
		for _, slot := range flow.Slots {
			moving[slot] = true
		}
	}
	if err := edit(&topology.Spec); err != nil {
		return nil, err
	}
	return moving, w.hub.Update(ctx, topology)
}

// awaitStable waits until no change is under way, and calls see with each topology that it reads.
func (w *world) awaitStable(ctx context.Context, see func(*v1alpha1.CellTopology)) error {
	return w.poll(ctx, func() (bool, error) {
		topology, err := w.topology(ctx)
		if err != nil {
			return false, err
		}
		see(topology)
		return topology.Status.ObservedGeneration == topology.Generation && topology.Status.Phase == v1alpha1.TopologyStable && cells.Running(&topology.Spec) == "", nil
	})
}

// pollInterval is short enough to measure tenths of a second, and long enough not to affect the measurement.
const pollInterval = 100 * time.Millisecond

// poll waits until a condition holds.
func (w *world) poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (w *world) processes(prefix string) []*process.Process {
	var found []*process.Process
	for _, p := range w.federation.Processes() {
		if strings.HasPrefix(p.Name(), prefix) {
			found = append(found, p)
		}
	}
	return found
}
