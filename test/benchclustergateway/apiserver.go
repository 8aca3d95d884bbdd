package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/synthetic"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// writers is the number of concurrent writers.
const writers = 32

// compare lists the same pods from a kube-apiserver and from the cluster-gateway's server, over the same kind of connection.
func compare(ctx context.Context, s settings) error {
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binaries, err := kubebin.Ensure(ctx, func(string, int) {})
	if err != nil {
		return err
	}
	// As of a cell in operation.
	if err := os.Setenv("GOGC", "200"); err != nil {
		return err
	}
	federation, err := local.Open(dir, local.Spec{WithoutHub: true, Cells: 1}, local.Options{Binaries: binaries, NoFsync: true})
	if err != nil {
		return err
	}
	defer func() {
		_ = federation.Stop(context.WithoutCancel(ctx)) // the rest ends with this process
		federation.Close()
	}()
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return err
	}
	config, err := federation.Cells[0].AdminConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	if err := createPods(ctx, config, 0, s.large); err != nil {
		return err
	}
	direct, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	apiServer := endpoint{"kube-apiserver", direct, config.Host}
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods()})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := copyPods(ctx, apiServer, store); err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(handler(store))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	return sideBySide(ctx, s.large, apiServer, endpoint{"cluster-gateway", server.Client(), server.URL})
}

// createPods creates pods, which nothing changes: no controllers run in a cell.
func createPods(ctx context.Context, config *rest.Config, first, end int) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := first / synthetic.PodsPerNamespace * synthetic.PodsPerNamespace; i < end; i += synthetic.PodsPerNamespace {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: synthetic.Namespace(i)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := first; i < end; i++ {
		group.Go(func() error {
			pod := synthetic.Pod(i, 0)
			status := pod.Status
			pod.ResourceVersion, pod.UID = "", ""
			created, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating a pod: %w", err)
			}
			created.Status = status
			if _, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("writing a pod's status: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// copyPods populates a store from a list of an endpoint.
func copyPods(ctx context.Context, from endpoint, store *clustercache.Store) error {
	body, err := from.get(ctx, "", runtime.ContentTypeProtobuf)
	if err != nil {
		return err
	}
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
	if err != nil {
		return err
	}
	list, ok := decoded.(*corev1.PodList)
	if !ok {
		return fmt.Errorf("%T is not a list of pods", decoded)
	}
	feed := store.Feed("member-000")
	feed.Begin()
	for i := range list.Items {
		if err := feed.ApplyObject(&list.Items[i]); err != nil {
			return err
		}
	}
	feed.End()
	return nil
}

// endpoint is a server of pods.
type endpoint struct {
	name   string
	client *http.Client
	url    string
}

// get returns a list of pods, uncompressed.
func (e endpoint) get(ctx context.Context, query, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/api/v1/pods"+query, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", "identity")
	response, err := e.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %.200s", e.name, response.Status, body)
	}
	return body, nil
}

// formats are the measured formats of lists.
var formats = []struct{ name, accept string }{
	{"protobuf", runtime.ContentTypeProtobuf}, {"JSON", runtime.ContentTypeJSON}, {"Table", tableContentType},
}

// sideBySide lists from both in turn, so that other load on the machine slows down both.
func sideBySide(ctx context.Context, pods int, endpoints ...endpoint) error {
	fmt.Printf("%d pods, side by side\n", pods)
	for _, format := range formats {
		if err := sideBySideAs(ctx, format.name, format.accept, endpoints); err != nil {
			return err
		}
	}
	return nil
}

func sideBySideAs(ctx context.Context, name, accept string, endpoints []endpoint) error {
	const runs = 9
	times := make([][]time.Duration, len(endpoints))
	sizes := make([]int, len(endpoints))
	for range runs {
		for i, e := range endpoints {
			start := time.Now()
			// Version 0 is served from the watch cache.
			body, err := e.get(ctx, "?resourceVersion=0", accept)
			if err != nil {
				return err
			}
			times[i] = append(times[i], time.Since(start))
			sizes[i] = len(body)
		}
	}
	for i, e := range endpoints {
		slices.Sort(times[i])
		report("list all as "+name+" from "+e.name, "median %v, fastest %v (%.1f MB)", quantile(times[i], 0.5).Round(100*time.Microsecond), times[i][0].Round(100*time.Microsecond), float64(sizes[i])/1e6)
	}
	report("times faster than kube-apiserver as "+name, "%.1f", quantile(times[0], 0.5).Seconds()/quantile(times[1], 0.5).Seconds())
	return nil
}
