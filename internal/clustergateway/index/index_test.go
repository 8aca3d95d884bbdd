package index_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/index/opensearch"
	"github.com/cellplane/cellplane/internal/clustergateway/index/opensearch/opensearchtest"
)

const indexName = "kubernetes-service"

var (
	services   = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	secretName = types.NamespacedName{Namespace: names.SystemNamespace, Name: "opensearch"}
)

// world is a store of Services, an index of them, and the credentials for it.
type world struct {
	t        testing.TB
	engine   *opensearchtest.Server
	store    *clustercache.Store
	feeds    map[string]*clustercache.Feed
	indexers *index.Indexers
	stop     func()

	mu      sync.Mutex
	secrets map[types.NamespacedName]*corev1.Secret
	reads   int
}

func newWorld(t testing.TB, history int) *world {
	w := &world{t: t, engine: opensearchtest.Start(t), feeds: map[string]*clustercache.Feed{}, secrets: map[types.NamespacedName]*corev1.Secret{}}
	w.setSecret(secretOf("1", nil))
	w.store = newStore(t, history)
	for _, cluster := range []string{"m1", "m2"} {
		w.feeds[cluster] = w.store.Feed(cluster)
		w.feeds[cluster].Begin()
		w.feeds[cluster].End()
	}
	return w
}

func newStore(t testing.TB, history int) *clustercache.Store {
	store, err := clustercache.New(clustercache.Options{History: history, Kind: clustercache.Kind{
		GroupVersionKind: services, Resource: "services", Namespaced: true, Separate: true, ClusterAnnotation: names.CachedFromClusterAnnotation,
	}})
	check(t, err)
	t.Cleanup(store.Close)
	return store
}

func secretOf(version string, change func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secretName.Namespace, Name: secretName.Name, UID: "s", ResourceVersion: version}, Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{"username": []byte("admin"), "password": []byte("secret")},
	}
	if change != nil {
		change(secret)
	}
	return secret
}

func (w *world) setSecret(secret *corev1.Secret) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}] = secret
}

// changeSecret sets a Secret and waits until it is used: a bulk that is sent before has the former credentials.
func (w *world) changeSecret(secret *corev1.Secret) {
	w.t.Helper()
	w.setSecret(secret)
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.reads
	}
	before := count()
	eventually(w.t, "the Secret is used", func(context.Context) (bool, error) {
		return count() >= before+2, nil // when it is read once more, what was read first is used
	})
}

func (w *world) secret(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if secret := w.secrets[name]; secret != nil {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name.Name)
}

func (w *world) target() index.Target { return index.TargetOf([]string{w.engine.URL}, secretName) }

// start runs indexers until stop, or the end of the test.
func (w *world) start(plans ...index.Plan) {
	w.t.Helper()
	w.indexers, w.stop = run(w.t, w.store, w.secret, plans)
}

func run(t testing.TB, store *clustercache.Store, secret func(context.Context, types.NamespacedName) (*corev1.Secret, error), plans []index.Plan) (*index.Indexers, func()) {
	removed := make(chan struct{})
	var users sync.WaitGroup
	indexers := index.New(index.Options{
		Open: opensearch.Open, Secret: secret, Progressed: func() {},
		Use: func(schema.GroupVersionKind) (*clustercache.Store, <-chan struct{}, func()) {
			users.Add(1)
			return store, removed, users.Done
		},
		Times: index.Times{Bulk: 5 * time.Millisecond, FirstPause: 5 * time.Millisecond, LongestPause: 20 * time.Millisecond, Compare: time.Hour, Request: 10 * time.Second, Secret: 10 * time.Millisecond},
	})
	indexers.Plan(plans)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		indexers.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
		users.Wait()
	})
	t.Cleanup(stop)
	return indexers, stop
}

func (w *world) plan(scope index.Scope) index.Plan {
	return index.Plan{Target: w.target(), Kind: services, Scope: scope}
}

func everything() index.Scope { return index.Scope{"m1": nil, "m2": nil} }

func service(namespace, name string, version int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(version),
			CreationTimestamp: metav1.Unix(1_700_000_000, 0), Labels: map[string]string{"app": name},
		},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0." + strconv.Itoa(version%256)},
	}
}

func (w *world) apply(cluster string, all ...*corev1.Service) {
	w.t.Helper()
	for _, s := range all {
		check(w.t, w.feeds[cluster].ApplyObject(s))
	}
}

// await waits until the index has the documents, written as name@version, and the state is the wanted one.
func (w *world) await(state index.State, want ...string) index.Progress {
	w.t.Helper()
	slices.Sort(want)
	var found index.Progress
	eventually(w.t, fmt.Sprintf("the index is %s with %v", state, want), func(context.Context) (bool, error) {
		found = w.indexers.Progress()[0]
		var got []string
		for _, document := range w.engine.Documents(indexName) {
			got = append(got, fmt.Sprintf("%s@%d", document.Metadata.Name, document.Version))
		}
		slices.Sort(got)
		if found.State != state || !slices.Equal(got, want) {
			return false, fmt.Errorf("it is %s (%s) with %v", found.State, found.Message, got)
		}
		return true, nil
	})
	return found
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (done bool, _ error) {
		done, last = condition(ctx)
		return done, nil
	}); err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestChanges follows additions, changes and deletions.
func TestChanges(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2")
	w.apply("m1", service("shop", "a", 3))
	w.apply("m2", service("shop", "c", 1))
	w.feeds["m1"].DeleteObject("shop", "b")
	w.await(index.Indexed, "a@3", "c@1")
	document := w.engine.Documents(indexName)["uid-a"]
	if document.Cellplane.Cluster != "m1" || document.Metadata.Annotations[names.CachedFromClusterAnnotation] != "m1" || !strings.Contains(document.Spec, `"clusterIP":"10.0.0.3"`) {
		t.Errorf("the document is %+v", document)
	}
}

// TestUnchanged checks that a restart and the stale marks of an unreachable cluster cause no writes.
func TestUnchanged(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2), service("shop", "c", 3))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2", "c@3")
	before, _ := w.engine.Operations()
	w.stop()
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2", "c@3")
	w.feeds["m1"].MarkStale(time.Now())
	for more := true; more; _, more = w.feeds["m1"].MarkObjects(1) {
	}
	w.feeds["m1"].Fresh()
	for more := true; more; _, more = w.feeds["m1"].MarkObjects(1) {
	}
	w.apply("m1", service("shop", "d", 4))
	w.await(index.Indexed, "a@1", "b@2", "c@3", "d@4")
	if after, _ := w.engine.Operations(); after != before+1 {
		t.Errorf("there were %d operations, want %d", after, before+1)
	}
}

// TestDown deletes and changes objects while nothing runs.
func TestDown(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2), service("shop", "c", 3))
	w.apply("m2", service("shop", "x", 1))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2", "c@3", "x@1")
	w.stop()
	w.feeds["m1"].DeleteObject("shop", "b")
	w.apply("m1", service("shop", "c", 9))
	// The store of the next start does not have m2 yet.
	w.feeds["m2"].Drop()
	w.start(w.plan(everything()))
	if p := w.await(index.Indexing, "a@1", "c@9", "x@1"); !strings.Contains(p.Message, "m2") {
		t.Errorf("the message is %q", p.Message)
	}
	w.feeds["m2"].Begin()
	w.apply("m2", service("shop", "y", 2))
	w.feeds["m2"].End()
	w.await(index.Indexed, "a@1", "c@9", "y@2")
}

// TestUnreachable checks that the documents of a cluster stay while it cannot be watched.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2))
	w.apply("m2", service("shop", "c", 3))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2", "c@3")
	w.feeds["m1"].MarkStale(time.Now())
	// An event later shows that the indexer has seen the state.
	w.apply("m2", service("shop", "d", 4))
	w.await(index.Indexed, "a@1", "b@2", "c@3", "d@4")
	w.feeds["m1"].Drop()
	w.apply("m2", service("shop", "e", 5))
	w.await(index.Indexed, "a@1", "b@2", "c@3", "d@4", "e@5")
	w.feeds["m1"].Begin()
	w.apply("m1", service("shop", "b", 6))
	w.feeds["m1"].End()
	w.await(index.Indexed, "b@6", "c@3", "d@4", "e@5")
}

// TestScope changes what is selected.
func TestScope(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("other", "b", 2))
	w.apply("m2", service("shop", "c", 3))
	w.start(w.plan(index.Scope{"m1": {"shop"}}))
	w.await(index.Indexed, "a@1")
	w.indexers.Plan([]index.Plan{w.plan(everything())})
	w.await(index.Indexed, "a@1", "b@2", "c@3")
	w.indexers.Plan([]index.Plan{w.plan(index.Scope{"m1": {"other"}, "m2": nil})})
	w.await(index.Indexed, "b@2", "c@3")
	w.indexers.Plan([]index.Plan{w.plan(index.Scope{"m1": nil})})
	w.await(index.Indexed, "a@1", "b@2")
	// Without a plan the documents stay, although their objects leave the store.
	w.indexers.Plan(nil)
	w.feeds["m1"].Drop()
	if got := w.engine.Documents(indexName); len(got) != 2 || len(w.indexers.Progress()) != 0 {
		t.Errorf("the documents are %v", got)
	}
}

// TestFailures lets OpenSearch fail in several ways while objects change.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		request func(*http.Request) int
		item    func(id string) int
		want    string // in the message
	}{
		"too many requests":   {request: ofBulks(http.StatusTooManyRequests), want: "429 Too Many Requests"},
		"unavailable":         {request: func(*http.Request) int { return http.StatusServiceUnavailable }, want: "503 Service Unavailable"},
		"forbidden":           {request: ofBulks(http.StatusForbidden), want: "the user lacks rights"},
		"one document busy":   {item: ofID("uid-b", http.StatusTooManyRequests), want: "injected for a document"},
		"one document failed": {item: ofID("uid-b", http.StatusInternalServerError), want: "injected for a document"},
		"an unreadable index": {request: func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/_search") {
				return http.StatusInternalServerError
			}
			return 0
		}, want: "reading the index kubernetes-service"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.engine.Fail(test.request, test.item)
			w.apply("m1", service("shop", "a", 1), service("shop", "b", 2))
			w.start(w.plan(everything()))
			eventually(t, "the failure is reported", func(context.Context) (bool, error) {
				p := w.indexers.Progress()[0]
				if p.State != index.Failing || !strings.Contains(p.Message, test.want) {
					return false, fmt.Errorf("it is %s: %s", p.State, p.Message)
				}
				return true, nil
			})
			w.apply("m1", service("shop", "b", 3))
			w.feeds["m1"].DeleteObject("shop", "a")
			w.engine.Fail(nil, nil)
			w.await(index.Indexed, "b@3")
		})
	}
}

func ofBulks(status int) func(*http.Request) int {
	return func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/_bulk") {
			return status
		}
		return 0
	}
}

func ofID(id string, status int) func(string) int {
	return func(found string) int {
		if found == id {
			return status
		}
		return 0
	}
}

// TestRefused has a document that OpenSearch never takes. The others are indexed.
func TestRefused(t *testing.T) {
	w := newWorld(t, 0)
	w.engine.Fail(nil, ofID("uid-b", http.StatusBadRequest))
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2), service("shop", "c", 3))
	w.start(w.plan(everything()))
	if p := w.await(index.Refusing, "a@1", "c@3"); !strings.Contains(p.Message, "1 documents were refused, such as that of shop/b of cluster m1: injected_exception") {
		t.Errorf("the message is %q", p.Message)
	}
	w.engine.Fail(nil, nil)
	w.apply("m1", service("shop", "b", 4))
	w.await(index.Indexed, "a@1", "b@4", "c@3")
}

// TestLargeBulks checks that bulks are bounded, and smaller still if OpenSearch takes only smaller ones.
func TestLargeBulks(t *testing.T) {
	const accepted = 1 << 20
	w := newWorld(t, 0)
	w.engine.Fail(func(r *http.Request) int {
		if r.ContentLength > accepted {
			return http.StatusRequestEntityTooLarge
		}
		return 0
	}, nil)
	var want []string
	for i := range 12 {
		large := service("shop", fmt.Sprintf("s%02d", i), i+1)
		large.Spec.ExternalName = strings.Repeat("x", 200<<10)
		if i == 7 {
			large.Spec.ExternalName = strings.Repeat("y", accepted)
		} else {
			want = append(want, fmt.Sprintf("s%02d@%d", i, i+1))
		}
		w.apply("m1", large)
	}
	w.start(w.plan(everything()))
	if p := w.await(index.Refusing, want...); !strings.Contains(p.Message, "shop/s07 of cluster m1") {
		t.Errorf("the message is %q", p.Message)
	}
	if _, largest := w.engine.Operations(); largest > accepted {
		t.Errorf("the largest bulk had %d bytes", largest)
	}
}

// TestCredentials uses Secrets that are wrong, missing or not meant for OpenSearch.
func TestCredentials(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1))
	w.setSecret(secretOf("1", func(s *corev1.Secret) { s.Data["password"] = []byte("wrong") }))
	w.start(w.plan(everything()))
	failing := func(want string) {
		t.Helper()
		eventually(t, want, func(context.Context) (bool, error) {
			p := w.indexers.Progress()[0]
			if p.State != index.Failing || !strings.Contains(p.Message, want) || strings.Contains(p.Message, "secret123") {
				return false, fmt.Errorf("it is %s: %s", p.State, p.Message)
			}
			return true, nil
		})
	}
	failing("OpenSearch answered 401 Unauthorized: username or password are wrong")
	w.setSecret(secretOf("2", nil))
	w.await(index.Indexed, "a@1")
	w.engine.SetPassword("secret123")
	w.apply("m1", service("shop", "b", 2))
	failing("username or password are wrong")
	w.setSecret(secretOf("3", func(s *corev1.Secret) { s.Data["password"] = []byte("secret123") }))
	w.await(index.Indexed, "a@1", "b@2")
	w.apply("m1", service("shop", "c", 3))
	rejected := w.engine.Rejected()
	for i, test := range []struct {
		change func(*corev1.Secret)
		want   string
	}{
		{func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken }, "is of type kubernetes.io/service-account-token"},
		{func(s *corev1.Secret) { s.Data["token"] = []byte("t") }, "has other keys than username, password and caBundle"},
		{func(s *corev1.Secret) { delete(s.Data, "password") }, "must have the keys username and password"},
		{func(s *corev1.Secret) { s.Data["caBundle"] = []byte("none") }, "connecting to OpenSearch"},
		{func(s *corev1.Secret) {
			s.Annotations = map[string]string{names.SearchAddressesAnnotation: "https://a:9200, https://b:9200"}
		}, "may not be used for http://127.0.0.1"},
	} {
		w.changeSecret(secretOf(fmt.Sprint("bad", i), test.change))
		w.apply("m1", service("shop", "c", 4+i))
		failing(test.want)
	}
	if w.engine.Rejected() != rejected {
		t.Error("credentials were sent that must not be")
	}
	w.setSecret(secretOf("4", func(s *corev1.Secret) {
		s.Data["password"], s.Annotations = []byte("secret123"), map[string]string{names.SearchAddressesAnnotation: w.engine.URL}
	}))
	w.await(index.Indexed, "a@1", "b@2", "c@8")
}

// TestOtherNamespaces checks that Secrets elsewhere, such as those of members, are not even read.
func TestOtherNamespaces(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1))
	elsewhere := types.NamespacedName{Namespace: names.ClusterNamespace, Name: "m1"}
	w.setSecret(secretOf("1", func(s *corev1.Secret) { s.Namespace, s.Name = elsewhere.Namespace, elsewhere.Name }))
	w.start(index.Plan{Target: index.TargetOf([]string{w.engine.URL}, elsewhere), Kind: services, Scope: everything()})
	eventually(t, "the Secret is refused", func(context.Context) (bool, error) {
		p := w.indexers.Progress()[0]
		return p.State == index.Failing && strings.Contains(p.Message, "must name a Secret in the namespace karmada-system"), errors.New(p.Message)
	})
	w.stop()
	if count, _ := w.engine.Operations(); w.reads != 0 || count != 0 || w.engine.Rejected() != 0 {
		t.Errorf("%d Secrets were read, %d operations sent", w.reads, count)
	}
}

// TestReplicas has a replica that is behind the other.
func TestReplicas(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 5), service("shop", "b", 6))
	w.start(w.plan(index.Scope{"m1": nil}))
	w.await(index.Indexed, "a@5", "b@6")
	behind := &world{t: t, engine: w.engine, store: newStore(t, 0), secrets: w.secrets}
	feed := behind.store.Feed("m1")
	behind.feeds = map[string]*clustercache.Feed{"m1": feed}
	feed.Begin()
	behind.apply("m1", service("shop", "a", 1), service("shop", "b", 2))
	feed.End()
	behind.start(behind.plan(index.Scope{"m1": nil}))
	behind.await(index.Indexed, "a@5", "b@6")
	// The other replica ends before it sees a deletion; this one has never seen the last version.
	w.stop()
	feed.DeleteObject("shop", "b")
	behind.await(index.Indexed, "a@5")
}

// TestMissedChanges has fewer events in the history than changes while OpenSearch does not answer.
func TestMissedChanges(t *testing.T) {
	w := newWorld(t, 4)
	w.apply("m1", service("shop", "a", 1), service("shop", "gone", 2))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "gone@2")
	reached := make(chan struct{})
	once := sync.OnceFunc(func() { close(reached) })
	w.engine.Fail(func(*http.Request) int {
		once()
		return http.StatusServiceUnavailable
	}, nil)
	w.apply("m1", service("shop", "a", 3))
	<-reached
	w.feeds["m1"].DeleteObject("shop", "gone")
	want := map[string]int{"a": 3}
	for i := range 3000 { // more than an indexer holds
		name := fmt.Sprint("s", i%1500)
		want[name] = 10 + i
		w.apply("m1", service("shop", name, 10+i))
	}
	w.engine.Fail(nil, nil)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		all = append(all, fmt.Sprintf("%s@%d", name, want[name]))
	}
	w.await(index.Indexed, all...)
}

// TestMissingIndex deletes the index.
func TestMissingIndex(t *testing.T) {
	w := newWorld(t, 0)
	w.apply("m1", service("shop", "a", 1), service("shop", "b", 2))
	w.start(w.plan(everything()))
	w.await(index.Indexed, "a@1", "b@2")
	w.engine.DeleteIndex(indexName)
	w.apply("m1", service("shop", "b", 3))
	w.await(index.Indexed, "a@1", "b@3")
}
