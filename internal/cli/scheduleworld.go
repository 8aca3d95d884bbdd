package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
)

// federation is the state that schedulers use.
type federation struct {
	client   client.Client
	clusters []*clusterv1alpha1.Cluster
	snapshot *schedule.Snapshot
	accounts map[string]*ledger.Account
	profiles map[string]*cellplanev1alpha1.SchedulingProfile
}

// readFederation reads the state that schedulers use.
func readFederation(ctx context.Context, config *rest.Config) (*federation, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the federation: %w", err)
	}
	var clusters clusterv1alpha1.ClusterList
	var profiles cellplanev1alpha1.ClusterProfileList
	var ledgers cellplanev1alpha1.ClusterLedgerList
	var preferences cellplanev1alpha1.SchedulingProfileList
	for _, list := range []client.ObjectList{&clusters, &profiles, &ledgers, &preferences} {
		if err := reader.List(ctx, list); err != nil {
			return nil, fmt.Errorf("reading the clusters of the federation: %w", err)
		}
	}
	f := &federation{client: reader, accounts: map[string]*ledger.Account{}, profiles: map[string]*cellplanev1alpha1.SchedulingProfile{}}
	var facts []*cellplanev1alpha1.ClusterProfile
	for i := range profiles.Items {
		facts = append(facts, &profiles.Items[i])
	}
	for i := range clusters.Items {
		f.clusters = append(f.clusters, &clusters.Items[i])
	}
	for i := range ledgers.Items {
		f.accounts[ledgers.Items[i].Name] = ledger.Open(&ledgers.Items[i], nil, time.Now())
	}
	for i := range preferences.Items {
		f.profiles[preferences.Items[i].Name] = &preferences.Items[i]
	}
	f.snapshot = schedule.Compile(f.clusters, facts...)
	return f, nil
}

// decide makes the decision that an engine would make, with an explanation.
func (f *federation) decide(q *question) (*decisionReport, error) {
	request := schedule.Request{
		Spec: q.spec, UID: q.spec.Resource.UID, Affinity: q.affinity, Snapshot: f.snapshot, Explain: true, Progress: q.progress(time.Now()),
	}
	if q.profile != "" {
		profile := f.profiles[q.profile]
		if profile == nil {
			return nil, fmt.Errorf("there is no SchedulingProfile %s; the workload needs it", q.profile)
		}
		request.Profile = &profile.Spec
	}
	capacity, growth := ledger.Estimators(func(cluster string) *ledger.Account { return f.accounts[cluster] }, q.pod)
	request.Estimators, request.Growth = []schedule.Estimator{capacity}, growth
	report := f.newReport(q)
	result, err := schedule.Plan(request, nil)
	var failure *schedule.Failure
	switch {
	case err == nil:
		report.Clusters, report.Notes, report.Attempts = result.Clusters, result.Notes, result.Attempts
	case errors.As(err, &failure):
		report.Failure, report.Attempts = failure.Message, failure.Attempts
	default:
		return nil, err
	}
	report.addCost()
	return report, nil
}
