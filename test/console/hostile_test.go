package console

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// hostile is markup that runs a script where it is not shown as text.
const hostile = `"><img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg onload="window.hacked=3">`

// Texts of others are shown as they are. No script of theirs runs, and the policy of the page has to refuse nothing.
func (f *federation) testHostileTexts(t *testing.T, browser context.Context) {
	f.region(t, "member2", hostile)
	events := f.kube.CoreV1().Events("default")
	event, err := events.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "hostile-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "cluster.karmada.io/v1alpha1", Kind: "Cluster", Name: "member2" + hostile},
		Reason:         "Hostile" + hostile, Message: "javascript:alert(1) " + hostile, Type: corev1.EventTypeWarning,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Delete(context.Background(), event.Name, metav1.DeleteOptions{}) })
	p := open(t, browser, f.link(t))
	p.shows(`<script>window.hacked=2</script>`, "javascript:alert(1)")
	p.click(".nav a", "Clusters")
	p.shows(`onerror="window.hacked=1"`)
	p.click("a.name", "member2")
	p.shows("The largest pod that fits", `onerror="window.hacked=1"`)
	// Addresses are texts of others, too.
	evaluate[string](p, `location.hash = "#/clusters/" + encodeURIComponent("<img src=x onerror=window.hacked=4>")`)
	p.shows("There is no cluster <img src=x onerror=window.hacked=4>")
	evaluate[string](p, `location.hash = "#/%E0%A4%A/<script>"`)
	p.shows("There is no such page")
	if evaluate[bool](p, "window.hacked !== undefined") {
		t.Error("a script of an object ran")
	}
}

// region sets the region of a cluster until the test ends.
func (f *federation) region(t *testing.T, name, region string) {
	t.Helper()
	set := func(ctx context.Context, region string) error {
		cluster := &clusterv1alpha1.Cluster{}
		if err := f.client.Get(ctx, types.NamespacedName{Name: name}, cluster); err != nil {
			return err
		}
		before := cluster.DeepCopy()
		cluster.Spec.Region = region
		return f.client.Patch(ctx, cluster, client.MergeFrom(before))
	}
	if err := set(t.Context(), region); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), ""); err != nil {
			t.Error(err)
		}
	})
}
