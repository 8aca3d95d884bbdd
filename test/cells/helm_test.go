package cells

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/testenv"
)

// releasesNamespace has what tools install and wait for. Other clients take a removed ConfigMap for a loss.
const releasesNamespace = "releases"

// releasesPolicies place what tools install. Helm compares the replicas that are ready with those of the template.
var releasesPolicies = map[string]string{
	"in-one":  `"resourceSelectors":[{"apiVersion":"apps/v1","kind":"StatefulSet"},{"apiVersion":"v1","kind":"Service"}],"placement":{"clusterAffinity":{"clusterNames":["member1"]}}`,
	"divided": `"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment"}],"placement":{"replicaScheduling":{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted"}}`,
}

// prepareReleases lets the engines place what tools install. Objects can be created when all cells have their namespace.
func (w *world) prepareReleases(cells ...string) {
	w.Helper()
	if _, err := w.gateway.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releasesNamespace}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	for _, cell := range cells {
		testenv.Eventually(w, cell+" has the namespace", func(ctx context.Context) (bool, error) {
			_, err := w.cellClient(cell).CoreV1().Namespaces().Get(ctx, releasesNamespace, metav1.GetOptions{})
			return err == nil, err
		})
	}
	for name, spec := range releasesPolicies {
		policy := `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
		err := w.gateway.CoreV1().RESTClient().Post().AbsPath("/apis/policy.karmada.io/v1alpha1/namespaces/"+releasesNamespace+"/propagationpolicies").
			Body([]byte(policy)).SetHeader("Content-Type", "application/json").Do(w.Context()).Error()
		if err != nil {
			w.Fatal(err)
		}
	}
}

// useHelmWait installs a release, upgrades it and removes it. Each time Helm waits: until the pods in the members are ready, are those of the
// upgrade, and until the objects are gone.
func (w *world) useHelmWait(ctx context.Context, name string) error {
	for _, image := range []string{"store:1", "store:2"} {
		if err := w.repeat(ctx, w.helmCommand("upgrade", "--install", name, "testdata/chart", "--set", "image="+image, "--wait", "--timeout", clientWithin.String())); err != nil {
			return err
		}
		if err := w.checkRelease(ctx, name, image); err != nil {
			return err
		}
	}
	if err := w.repeat(ctx, w.helmCommand("uninstall", name, "--ignore-not-found", "--wait", "--timeout", clientWithin.String())); err != nil {
		return err
	}
	_, err := w.slow.AppsV1().StatefulSets(releasesNamespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("Helm did not wait until the StatefulSet %s was gone: %w", name, err)
	}
	_, err = w.slow.AppsV1().Deployments(releasesNamespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("Helm did not wait until the Deployment %s was gone: %w", name, err)
	}
	return nil
}

// useConditions lets kubectl wait until a Deployment in two members is available.
func (w *world) useConditions(ctx context.Context, name string) error {
	in := func(args ...string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			return w.command(ctx, append([]string{"kubectl", "--context", "cellplane", "-n", releasesNamespace}, args...)...).CombinedOutput()
		}
	}
	for _, args := range [][]string{
		{"create", "deployment", name, "--image=store:1", "--replicas=2"},
		{"wait", "deployment/" + name, "--for=condition=Available", "--timeout", clientWithin.String()},
		{"rollout", "status", "deployment/" + name, "--timeout", clientWithin.String()},
	} {
		if err := w.repeat(ctx, in(args...)); err != nil {
			return err
		}
	}
	deployment, err := w.slow.AppsV1().Deployments(releasesNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if deployment.Status.AvailableReplicas != 2 {
		return fmt.Errorf("kubectl did not wait until %s was rolled out: %+v", name, deployment.Status)
	}
	return w.repeat(ctx, in("delete", "deployment", name, "--ignore-not-found", "--timeout", clientWithin.String()))
}

func (w *world) helmCommand(args ...string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		return w.helm.Command(ctx, releasesNamespace, append([]string{"--kube-context", "cellplane"}, args...)...).CombinedOutput()
	}
}

// unknownOutcome is in the answer of a gateway that was cut off while it wrote, as on a machine that is overloaded. Users then repeat the command.
const unknownOutcome = "it is not known whether the change"

// repeat runs a command until its outcome is known. The object of a creation that is repeated may exist.
func (w *world) repeat(ctx context.Context, command func(context.Context) ([]byte, error)) error {
	for unknown := false; ; unknown = true {
		output, err := command(ctx)
		if err == nil || unknown && strings.Contains(string(output), "AlreadyExists") {
			return nil
		}
		if !strings.Contains(string(output), unknownOutcome) {
			return fmt.Errorf("%w: %s", err, output)
		}
	}
}

// checkRelease returns an error if a release was not complete when Helm stopped waiting.
func (w *world) checkRelease(ctx context.Context, name, image string) error {
	set, err := w.slow.AppsV1().StatefulSets(releasesNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := set.Status
	if got := set.Spec.Template.Spec.Containers[0].Image; got != image || status.ObservedGeneration != set.Generation || status.ReadyReplicas != 2 || status.UpdatedReplicas != 2 {
		return fmt.Errorf("Helm did not wait until the StatefulSet %s was ready: it has image %s, generation %d and status %+v", name, got, set.Generation, status)
	}
	deployment, err := w.slow.AppsV1().Deployments(releasesNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	rolled := deployment.Status
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != image || rolled.ObservedGeneration != deployment.Generation || rolled.AvailableReplicas != 2 || rolled.UpdatedReplicas != 2 {
		return fmt.Errorf("Helm did not wait until the Deployment %s was ready: it has image %s, generation %d and status %+v", name, got, deployment.Generation, rolled)
	}
	return nil
}
