package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/internal/testenv"
)

// notes is a sink that keeps names and data.
type notes struct {
	mu      sync.Mutex
	data    map[string]string
	seen    map[string]bool
	relists int
}

func (n *notes) Set(obj runtime.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cm := obj.(*corev1.ConfigMap)
	n.data[cm.Name] = cm.Data["k"]
	if n.seen != nil {
		n.seen[cm.Name] = true
	}
}

func (n *notes) Unset(obj runtime.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.data, obj.(*corev1.ConfigMap).Name)
}

func (n *notes) Relist() func(string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = map[string]bool{}
	return func(string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.relists++
		for name := range n.data {
			if !n.seen[name] {
				delete(n.data, name)
			}
		}
		n.seen = nil
	}
}

func (n *notes) are(want map[string]string, relists int) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.relists < relists || len(n.data) != len(want) {
		return false, fmt.Errorf("%d entries after %d lists", len(n.data), n.relists)
	}
	for name, value := range want {
		if n.data[name] != value {
			return false, fmt.Errorf("%s is %q, want %q", name, n.data[name], value)
		}
	}
	return true, nil
}

// TestEachReason watches what is refused for ever, at last for another reason.
func TestEachReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		attempts := 0
		source := Source{List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if attempts++; attempts > 50 {
				cancel()
			}
			if attempts == 50 {
				return nil, errors.New("another reason")
			}
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no right"))
		}}
		var reported []string
		Watch(ctx, source, &notes{data: map[string]string{}}, EachReason(func(err error) { reported = append(reported, err.Error()) }))
		if len(reported) != 2 || attempts < 50 {
			t.Errorf("%d attempts were reported as %q, want the two reasons", attempts, reported)
		}
	})
}

func TestFollow(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	maps := server.Client(t).CoreV1().ConfigMaps(server.Namespace(t))
	want := map[string]string{}
	put := func(name, value string) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mine": "yes"}}, Data: map[string]string{"k": value}}
		if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			if _, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want[name] = value
	}
	for i := range pageSize + 10 { // more than a page
		put(fmt.Sprintf("cm-%d", i), "1")
	}

	const mine = "mine=yes"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sink := &notes{data: map[string]string{}}
	var mu sync.Mutex
	var current watch.Interface
	expire := false // the next watch is answered with 410
	refuse := true  // the second watch fails
	var failures []error
	refused := errors.New("refused")
	go Watch(ctx, Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = mine
			return maps.List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = mine
			mu.Lock()
			defer mu.Unlock()
			if expire {
				expire = false
				return nil, apierrors.NewResourceExpired("too old")
			}
			if refuse && current != nil {
				refuse = false
				return nil, refused
			}
			w, err := maps.Watch(ctx, options)
			current = w
			return w, err
		},
	}, sink, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err)
	})
	eventually := func(what string, relists int) {
		t.Helper()
		testenv.Eventually(t, what, func(context.Context) (bool, error) { return sink.are(want, relists) })
	}
	eventually("everything is listed", 1)
	put("cm-0", "2")
	if err := maps.Delete(t.Context(), "cm-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(want, "cm-1")
	eventually("changes arrive", 1)

	// A watch that ends is resumed from its position, also after a failure.
	end := func() {
		testenv.Eventually(t, "there is a watch to end", func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if current == nil {
				return false, nil
			}
			current.Stop()
			return true, nil
		})
	}
	end()
	put("cm-0", "3")
	eventually("the watch is resumed", 1)
	mu.Lock()
	// The end of the watch may count as a failure, too.
	if !errors.Is(errors.Join(failures...), refused) {
		t.Errorf("failures are %v", failures)
	}
	expire = true
	mu.Unlock()

	// An expired position leads to a relist, which finds deletions.
	end()
	if err := maps.Delete(t.Context(), "cm-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(want, "cm-2")
	eventually("everything is listed again", 2)
}

// TestFollowBacksOffWhenWatchesExpire watches a server whose watch window is too short: each watch is answered with 410.
func TestFollowBacksOffWhenWatchesExpire(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old resource version")
	for name, test := range map[string]struct {
		listTime time.Duration
		watch    func() (watch.Interface, error)
	}{
		"watch refused": {0, func() (watch.Interface, error) { return nil, expired }},
		"error event": {0, func() (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			w.Error(&expired.ErrStatus)
			return w, nil
		}},
		"list slower than any back-off": {2 * steadyWatch, func() (watch.Interface, error) { return nil, expired }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const period = time.Hour
				ctx, cancel := context.WithTimeout(t.Context(), period)
				defer cancel()
				lists, longestGap, last := 0, time.Duration(0), time.Now()
				Watch(ctx, Source{
					List: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
						longestGap = max(longestGap, time.Since(last))
						sleep(ctx, test.listTime)
						lists, last = lists+1, time.Now()
						return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
					},
					Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return test.watch() },
				}, &notes{data: map[string]string{}}, func(err error) { t.Errorf("reported failure: %v", err) })
				// The pauses grow to longestRelistPause within about ten lists.
				if atMost := int(period/(longestRelistPause+test.listTime)) + 10; lists > atMost {
					t.Errorf("listed %d times in %v, want at most %d", lists, period, atMost)
				}
				if lists < 2 || longestGap > 2*longestRelistPause {
					t.Errorf("listed %d times with gaps of up to %v", lists, longestGap)
				}
			})
		})
	}
}

// TestFollowRelistsSoonAfterASteadyWatch expires watches that have lived for a while: the pause before the list stays short.
func TestFollowRelistsSoonAfterASteadyWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var expiredAt time.Time
		Watch(ctx, Source{
			List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if gap := time.Since(expiredAt); !expiredAt.IsZero() && gap > 2*firstPause {
					t.Errorf("listed %v after the watch expired", gap)
				}
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			Watch: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				sleep(ctx, 2*steadyWatch)
				expiredAt = time.Now()
				return nil, apierrors.NewResourceExpired("too old resource version")
			},
		}, &notes{data: map[string]string{}}, nil)
	})
}

func TestUnreachable(t *testing.T) {
	kind := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("something of ours"), false},
		{context.Canceled, false},
		{fmt.Errorf("creating: %w", context.DeadlineExceeded), true},
		{fmt.Errorf("creating: %w", &url.Error{Op: "Post", URL: "https://x", Err: errors.New("connection refused")}), true},
		{fmt.Errorf("creating: %w", apierrors.NewServiceUnavailable("starting")), true},
		{apierrors.NewUnauthorized("who?"), true},
		{apierrors.NewGenericServerResponse(http.StatusBadGateway, "post", kind, "x", "", 0, true), true},
		{apierrors.NewForbidden(kind, "x", errors.New("quota")), false},
		{apierrors.NewConflict(kind, "x", nil), false},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		{apierrors.NewTooManyRequests("slow down", 1), false},
	} {
		if got := Unreachable(test.err); got != test.want {
			t.Errorf("Unreachable(%v) = %t", test.err, got)
		}
	}
}
