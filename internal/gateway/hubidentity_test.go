package gateway

import (
	"net/http"
	"strings"
	"testing"
)

func TestJudgeOfHubIdentity(t *testing.T) {
	own, proxy := identity{name: "--hub-kubeconfig"}, identity{name: "--hub-proxy-client-cert-file", user: "system:cellplane:gateway"}
	for _, test := range []struct {
		by       identity
		code     int
		answer   string
		rejected string // a part of the reason
		unknown  bool
	}{
		{by: own, code: http.StatusCreated, answer: `{"status":{"userInfo":{"username":"anybody"}}}`},
		{by: proxy, code: http.StatusCreated, answer: `{"status":{"userInfo":{"username":"system:cellplane:gateway"}}}`},
		{by: proxy, code: http.StatusCreated, answer: `{"status":{"userInfo":{"username":"front-proxy-client"}}}`, rejected: "front-proxy CA"},
		{by: own, code: http.StatusUnauthorized, answer: `{"message":"Unauthorized"}`, rejected: "--hub-kubeconfig with 401"},
		{by: proxy, code: http.StatusUnauthorized, rejected: "--hub-proxy-client-cert-file with 401"},
		{by: own, code: http.StatusForbidden, answer: `{"message":"User \"system:anonymous\" cannot create resource"}`, rejected: "anonymous"},
		{by: own, code: http.StatusForbidden, answer: `{"message":"User \"someone\" cannot create resource"}`},
		{by: own, code: http.StatusTooManyRequests, unknown: true},
		{by: own, code: http.StatusServiceUnavailable, unknown: true},
		{by: own, code: http.StatusCreated, answer: "no JSON", unknown: true},
	} {
		rejected, err := test.by.judge(test.code, []byte(test.answer))
		got := ""
		if rejected != nil {
			got = rejected.Error()
		}
		if (err != nil) != test.unknown || (got == "") != (test.rejected == "") || !strings.Contains(got, test.rejected) {
			t.Errorf("%s, %d %s: got %q, %v", test.by.name, test.code, test.answer, got, err)
		}
	}
}

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 128 << 20: 400, 256 << 20: 200, 512 << 20: 100, 1 << 30: 50, 1 << 40: 50} {
		if got := gcPercentFor(live); got != want {
			t.Errorf("with %d MiB live: %d, want %d", live>>20, got, want)
		}
	}
}
