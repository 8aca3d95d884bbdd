// Package scheduling_test tests placement, failover and quotas against real API servers, with clusters that exist
// as objects only. They are in Pull mode, and the tests play their agents.
package scheduling_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/descheduler"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/schedule/profilefile"
	"github.com/cellplane/cellplane/internal/testenv"
)

// One hub and two cells serve all tests of the package. An engine runs for the first cell; tests start others if
// they need them.
var (
	hub, cell, other                   ctrlclient.WithWatch
	hubConfig, cellConfig, otherConfig *rest.Config
)

func TestMain(m *testing.M) {
	testenv.FederationMain(local.Spec{Cells: 2}, func(ctx context.Context, federation *local.Federation) (int, error) {
		for _, at := range []struct {
			plane  *controlplane.ControlPlane
			client *ctrlclient.WithWatch
			config **rest.Config
		}{{federation.Hub, &hub, &hubConfig}, {federation.Cells[0], &cell, &cellConfig}, {federation.Cells[1], &other, &otherConfig}} {
			var err error
			if *at.client, *at.config, err = enginetest.Connect(at.plane); err != nil {
				return 1, err
			}
		}
		if err := enginetest.Prepare(ctx, hub, cell, other); err != nil {
			return 1, err
		}
		profiles, err := profilefile.Parse([]byte(leaveRetired))
		if err != nil {
			return 1, err
		}
		stop := enginetest.Start(ctx, engine.Config{Cell: "cell-a", Config: cellConfig, HubAPI: hubConfig, Profiles: profiles, Descheduler: &descheduler.Options{Interval: time.Second, Pending: pendingPods}})
		defer stop()
		return m.Run(), nil
	})
}
