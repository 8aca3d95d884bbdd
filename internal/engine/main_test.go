package engine_test

import (
	"context"
	"os"
	"regexp"
	"testing"

	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// All tests of the package share one federation: a hub and a cell with their engines, and two members.
var (
	federation *local.Federation
	cell       ctrlclient.WithWatch
	cellConfig *rest.Config
	hub        ctrlclient.WithWatch
	hubConfig  *rest.Config
	stopEngine func()
	members    = map[string]ctrlclient.WithWatch{}
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(engineProcess); kubeconfig != "" {
		runEngineProcess(kubeconfig)
		return
	}
	testenv.FederationMain(local.Spec{Cells: 1, Members: 2, Nodes: 2}, func(ctx context.Context, started *local.Federation) (int, error) {
		federation = started
		if err := prepare(ctx); err != nil {
			return 1, err
		}
		stopHub := enginetest.Start(ctx, engine.Config{Cell: "hub", Config: hubConfig, Hub: true, SkippedNamespaces: []*regexp.Regexp{regexp.MustCompile("^kube-.*$")}})
		defer stopHub()
		stopEngine = startEngine(ctx)
		defer func() { stopEngine() }()
		return m.Run(), nil
	})
}

// startEngine starts the engine of the cell that all tests share, and returns the function that stops it.
func startEngine(ctx context.Context) func() {
	return enginetest.Start(ctx, engine.Config{Cell: federation.Cells[0].Name(), Config: cellConfig, SuccessEvents: successEvents(), MarkTargets: true, SyncReplicas: true, FederatedRollouts: true})
}

// successEvents is for TestCost: ENGINE_SUCCESS_EVENTS=all or off.
func successEvents() events.Successes { return events.Successes(os.Getenv("ENGINE_SUCCESS_EVENTS")) }

// prepare joins the members to the hub and the cell.
func prepare(ctx context.Context) (err error) {
	if cell, cellConfig, err = enginetest.Connect(federation.Cells[0]); err != nil {
		return err
	}
	if hub, hubConfig, err = enginetest.Connect(federation.Hub); err != nil {
		return err
	}
	if err := enginetest.Prepare(ctx, hub, cell); err != nil {
		return err
	}
	for _, member := range federation.Members {
		if members[member.Name()], err = enginetest.Join(ctx, member, cell, hub); err != nil {
			return err
		}
	}
	return nil
}
