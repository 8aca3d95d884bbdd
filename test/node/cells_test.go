package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testCells adds a cell and removes it, under load.
func (f *federation) testCells(t *testing.T) {
	l := startLoad(t, f, "cells")
	l.proceeds(t)
	manifest, names := spreadObjects(t, "cells")
	if out, err := f.kubeconfig.Try(t.Context(), t, manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := f.podUIDs(t)
	f.install(t, "cells[2].name=cell-c")
	change := func(args ...string) {
		t.Helper()
		out, err := cellplane(t, append([]string{"cells", "--kubeconfig=" + string(f.kubeconfig)}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	change("add", "cell-c")
	l.proceeds(t)
	if list := f.kubeconfig.Must(t, "get", "celltopologies", "-o", "jsonpath={.items[*].spec.cells[*].name}"); !strings.Contains(list, "cell-c") {
		t.Errorf("the topology has the cells %s", list)
	}
	if owned := f.slotsOf(t, "cell-c"); owned == "" || owned == "0" {
		t.Errorf("cell-c owns %q slots", owned)
	}
	f.cells["cell-c"] = f.connectCell(t, "cell-c")
	if counts := f.counts(t, "spread=cells"); counts["cell-c"] == 0 {
		t.Errorf("of %d objects, the cells have %v", len(names), counts)
	}
	change("drain", "cell-c")
	l.proceeds(t)
	if owned := f.slotsOf(t, "cell-c"); owned != "" && owned != "0" {
		t.Errorf("after it was drained, cell-c owns %s slots", owned)
	}
	delete(f.cells, "cell-c")
	f.install(t)
	l.proceeds(t)
	l.end(t)
	f.checkOnlyCellChanged(t, before)
	pods, err := f.node.Client.CoreV1().Pods(federationNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "cellplane.io/control-plane=cell-c"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			t.Errorf("pod %s is left", pods.Items[i].Name)
		}
	}
}

// slotsOf returns how many slots a cell owns, or nothing.
func (f *federation) slotsOf(t *testing.T, cell string) string {
	t.Helper()
	return f.kubeconfig.Must(t, "get", "celltopologies", "-o", `jsonpath={.items[*].status.cells[?(@.name=="`+cell+`")].slots}`)
}

// podUIDs returns the pods of all parts.
func (f *federation) podUIDs(t *testing.T) map[types.UID]string {
	t.Helper()
	pods, err := f.node.Client.CoreV1().Pods(federationNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component!=federate"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[types.UID]string{}
	for i := range pods.Items {
		found[pods.Items[i].UID] = pods.Items[i].Name
	}
	return found
}

// checkOnlyCellChanged expects that a new cell has replaced no pod of others.
func (f *federation) checkOnlyCellChanged(t *testing.T, before map[types.UID]string) {
	t.Helper()
	after := f.podUIDs(t)
	for uid, name := range before {
		if after[uid] == "" {
			t.Errorf("pod %s was replaced", name)
		}
	}
}

// testUninstall expects that nothing is left in the cluster, and that members go on.
func (f *federation) testUninstall(t *testing.T, members []*member) {
	uninstall := func(args ...string) {
		t.Helper()
		if out, err := cellplane(t, append([]string{"uninstall", "--kubeconfig=" + string(f.meta)}, args...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	uninstall()
	testenv.Eventually(t, "all pods are gone", func(ctx context.Context) (bool, error) {
		pods, err := f.node.Client.CoreV1().Pods(federationNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return len(pods.Items) == 0, fmt.Errorf("%d pods are left", len(pods.Items))
	})
	claims, err := f.node.Client.CoreV1().PersistentVolumeClaims(federationNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) == 0 {
		t.Errorf("without --purge, %d volumes are left: %v", len(claims.Items), err)
	}
	uninstall("--purge")
	testenv.Eventually(t, "nothing is left", func(ctx context.Context) (bool, error) {
		left, err := f.leftovers(ctx)
		if err != nil {
			return false, err
		}
		return len(left) == 0, fmt.Errorf("left: %v", left)
	})
	for _, m := range members {
		web, err := m.client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || *web.Spec.Replicas != 2 || web.DeletionTimestamp != nil {
			t.Errorf("in %s, the workload is %+v (%v)", m.name, web, err)
		}
	}
}

// leftovers returns all objects in the namespace that were not in it from the beginning, and those outside that belong to the installation.
func (f *federation) leftovers(ctx context.Context) ([]string, error) {
	lists, err := f.node.Client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !strings.Contains(fmt.Sprint(resource.Verbs), "list") || resource.Name == "events" {
				continue
			}
			path := "/apis/" + list.GroupVersion
			if list.GroupVersion == corev1.SchemeGroupVersion.String() {
				path = "/api/v1"
			}
			selector := "app.kubernetes.io/instance=cellplane"
			if resource.Namespaced {
				path += "/namespaces/" + federationNamespace
				selector = ""
			}
			var found metav1.PartialObjectMetadataList
			err := f.node.Client.Discovery().RESTClient().Get().AbsPath(path, resource.Name).Param("labelSelector", selector).
				SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Into(&found)
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", path, resource.Name, err)
			}
			for i := range found.Items {
				if name := found.Items[i].Name; name != "kube-root-ca.crt" && name != "default" {
					left = append(left, resource.Name+"/"+name)
				}
			}
		}
	}
	volumes, err := f.node.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range volumes.Items {
		if claim := volumes.Items[i].Spec.ClaimRef; claim != nil && claim.Namespace == federationNamespace {
			left = append(left, "volume of "+claim.Name)
		}
	}
	return left, nil
}
