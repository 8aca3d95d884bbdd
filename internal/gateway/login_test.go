package gateway_test

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cellplane/cellplane/internal/gateway/login"
)

// testLogin issues a certificate through the gateway and logs in with it.
func testLogin(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	certificate, err := login.Issue(ctx, w.client, login.User{Name: "grace", Groups: []string{"team-g"}, For: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := login.Kubeconfig(&clientcmdapi.Cluster{Server: w.gateway.URL(), CertificateAuthorityData: w.gateway.CA()}, "grace", certificate)
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	review, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if who := review.Status.UserInfo; who.Username != "grace" || len(who.Groups) != 2 || who.Groups[0] != "team-g" {
		t.Errorf("the hub takes grace for %+v", who)
	}
	for _, bad := range []login.User{
		{Name: "", For: time.Hour}, {Name: "system:admin", For: time.Hour}, {Name: "x", For: time.Second},
		{Name: "x", For: time.Hour, Groups: []string{"system:masters"}}, {Name: "x", For: time.Hour, Groups: []string{"cellplane:authorized"}},
	} {
		if _, err := login.Issue(ctx, w.client, bad); err == nil {
			t.Errorf("a certificate was issued for %+v", bad)
		}
	}
}
