package cells

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// releasesPolicy places what Helm installs for the clients. Helm compares the replicas that are ready with those of the template.
const releasesPolicy = `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"releases","namespace":"` + clientsNamespace + `"},
"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"StatefulSet"},{"apiVersion":"v1","kind":"Service"}],"placement":{"clusterAffinity":{"clusterNames":["member1"]}}}}`

// createReleasesPolicy lets the engine place what Helm installs.
func (w *world) createReleasesPolicy() {
	w.Helper()
	err := w.gateway.CoreV1().RESTClient().Post().AbsPath("/apis/policy.karmada.io/v1alpha1/namespaces/"+clientsNamespace+"/propagationpolicies").
		Body([]byte(releasesPolicy)).SetHeader("Content-Type", "application/json").Do(w.Context()).Error()
	if err != nil {
		w.Fatal(err)
	}
}

// useHelmWait installs a release, upgrades it and removes it. Each time Helm waits: until the pods in the member are ready, are those of the
// upgrade, and until the objects are gone.
func (w *world) useHelmWait(ctx context.Context, name string) error {
	if err := w.runHelm(ctx, "upgrade", "--install", name, "testdata/chart", "--wait", "--timeout", clientWithin.String()); err != nil {
		return err
	}
	if err := w.checkRelease(ctx, name, "store:1"); err != nil {
		return err
	}
	if err := w.runHelm(ctx, "upgrade", name, "testdata/chart", "--set", "image=store:2", "--wait", "--timeout", clientWithin.String()); err != nil {
		return err
	}
	if err := w.checkRelease(ctx, name, "store:2"); err != nil {
		return err
	}
	if err := w.runHelm(ctx, "uninstall", name, "--ignore-not-found", "--wait", "--timeout", clientWithin.String()); err != nil {
		return err
	}
	_, err := w.slow.AppsV1().StatefulSets(clientsNamespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("Helm did not wait until %s was gone: %w", name, err)
	}
	return nil
}

// unknownOutcome is in the answer of the gateway if it does not know whether a change was made. Users then repeat the command.
const unknownOutcome = "it is not known whether the change was made"

func (w *world) runHelm(ctx context.Context, args ...string) error {
	for {
		output, err := w.helm.Command(ctx, clientsNamespace, append([]string{"--kube-context", "cellplane"}, args...)...).CombinedOutput()
		if err == nil {
			return nil
		}
		if !strings.Contains(string(output), unknownOutcome) {
			return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, output)
		}
	}
}

// checkRelease returns an error if a release was not complete when Helm stopped waiting.
func (w *world) checkRelease(ctx context.Context, name, image string) error {
	set, err := w.slow.AppsV1().StatefulSets(clientsNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := set.Status
	if got := set.Spec.Template.Spec.Containers[0].Image; got != image || status.ObservedGeneration != set.Generation || status.ReadyReplicas != 2 || status.UpdatedReplicas != 2 {
		return fmt.Errorf("Helm did not wait until %s was ready: it has image %s, generation %d and status %+v", name, got, set.Generation, status)
	}
	return nil
}
